"""Levers."""

from kvplan.dashboard import frame

frame.heading("Levers")
