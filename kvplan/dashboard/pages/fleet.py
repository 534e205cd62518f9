"""Fleet."""

from kvplan.dashboard import frame

frame.heading("Fleet")
