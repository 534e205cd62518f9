"""Batching: how much of a static batch idles, and what continuous batching makes of the same requests."""

import streamlit as st

from kvplan import curves, figures, metrics, verdict
from kvplan.backlog import backlog, steps_shown
from kvplan.dashboard import frame
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.markdown import escape
from kvplan.units import count, percent_exact

AS_THEY_ARE, EQUAL = "as they are", "all equal"

report = frame.current_report()
answer = verdict.batching(report)
curve = curves.utilisation(report)
about = "static batches wait for their longest answer; the band is 95% of resamples"
with (
    frame.below_opening(report, answer, metrics.batching(report)),
    frame.section("Slot-steps used against batch", about),
):
    figure = figures.utilisation_figure(report, curve, frame.palette())
    frame.main_chart(figure, verdict.plain(answer.sentence), key="utilisation_chart")
    st.caption(escape(verdict.exponential_miss(report, curve.batches, curve.static, curve.exponential)) + ".")

about = "with equal lengths both take the same steps: variation alone is lost"
with frame.section("One backlog, slot by slot", about) as beside, beside:
    chosen = frame.choice(
        "Lengths of the requests", (AS_THEY_ARE, EQUAL), "backlog_lengths", VIEW_HELP["backlog_lengths"]
    )
runs = backlog(report, equal=chosen == EQUAL)
last = steps_shown(runs)
for column, policy, run in zip(
    st.columns(2, gap="medium"), ("static", "continuous"), (runs.static, runs.continuous), strict=True
):
    result = f"{policy.capitalize()}: {count(run.steps)} steps, {percent_exact(run.busy)} used"
    with column, frame.section(result):
        frame.chart(figures.slots_figure(runs, policy, last, frame.palette()), result, key=f"slots_{policy}")
st.caption(escape(verdict.backlog(runs)) + ".")

frame.footing(report)
