"""Ceiling: how many sequences fit, against context, and where the device's memory goes."""

import pandas as pd
import streamlit as st

from kvplan import breakdown, curves, figures, ledger, metrics, verdict
from kvplan.dashboard import frame
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.units import count, gib

report = frame.current_report()
answer = verdict.ceiling(report)
curve = curves.plan_ceilings(report)
others = {other.name: other for other in curves.comparisons(report, curve)}
top_of_axis = curves.ceiling_top(curve, list(others.values()))

with frame.below_opening(report, answer, metrics.ceiling(report)):
    left, right = st.columns([2.45, 1], gap="medium")
    with left, frame.section("Batch ceiling against context") as beside:
        with beside:
            shown = frame.pills(
                "Compare", list(others), curves.preselected(list(others.values())), VIEW_HELP["compare"]
            )
        compared = [others[name] for name in shown]
        figure = figures.ceiling_figure(report, curve, compared, top_of_axis, frame.palette())
        frame.main_chart(figure, verdict.plain(answer.sentence), key="ceiling_chart")

if report.engine.fits:
    table = pd.DataFrame(curves.ceiling_table(report))
    about = f"sequences; the row of {count(report.plan.context)} tokens is the plan's"
    with frame.section("Ceilings by context", about) as beside:
        with beside:
            frame.csv(table, "kvplan-ceilings.csv")
        frame.table(table, decimals={"Booked, GiB/device": 3}, plan_row=table["Context, tokens"] == report.plan.context)

if report.breakdown:
    costs = pd.DataFrame(breakdown.table(report.breakdown))
    reasons = [f"**{breakdown.KIND_NAMES[cost.kind]}**: {cost.reason}." for cost in report.breakdown]
    about = "one request of this context, on a device of the fullest stage, by kind of layer"
    with frame.section("Held and booked", about):
        frame.table(costs, decimals={"Page, KiB": 1, "Held, MiB": 1, "Booked, MiB": 1})
        frame.captions([*reasons, *report.remarks])

with frame.section("Where the pool comes from", "one device, in the order in which the engine subtracts"):
    frame.table(pd.DataFrame(ledger.table(ledger.pool_ledger(report))), decimals={"GiB/device": 2})

frame.footing(report)

# Last, so that the browser paints the chart on the left without waiting for it.
with right, st.container(gap="xsmall"):
    # As high as the row of pills beside it, so that both charts begin together.
    with st.container(height=28, border=False, horizontal=True, vertical_alignment="center"):
        frame.heading("One device", gib(report.memory.total_bytes))
    frame.chart(
        figures.memory_figure(report, frame.palette()),
        f"{gib(report.memory.weight_bytes)} of weights and {gib(report.memory.pool_bytes)} of KV pool "
        f"on a {gib(report.memory.total_bytes)} device",
        key="memory_chart",
    )
