"""Throughput."""

from kvplan.dashboard import frame

frame.heading("Throughput")
