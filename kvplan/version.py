"""The version of kvplan, written into links and reports."""

VERSION = "0.1.0"
