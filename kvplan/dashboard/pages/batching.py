"""Batching: how much of a static batch idles, and what continuous batching makes of the same steps."""

from kvplan import curves, figures, metrics, verdict
from kvplan.dashboard import frame

report = frame.current_report()
answer = verdict.batching(report)
frame.opening(report, answer, metrics.batching(report))

frame.heading(
    "Slot-steps used against batch", "static batches wait for their longest answer; continuous ones refill the slot"
)
frame.chart(
    figures.utilisation_figure(report, curves.utilisation(report), frame.palette()),
    verdict.plain(answer.sentence),
    key="utilisation_chart",
)

frame.footing(report)
