"""Paging: what whole blocks waste, against block size, and what reserving the context would."""

import streamlit as st

from kvplan import curves, figures, metrics, verdict
from kvplan.dashboard import frame

UNITS = {"share of booked": "share", "tokens a sequence": "tokens"}

report = frame.current_report()
answer = verdict.paging(report)
frame.opening(report, answer, metrics.paging(report))

with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
    frame.heading("What a larger block costs", "slots booked and not filled when a sequence completes, on average")
    unit = st.segmented_control(
        "Unit of waste",
        list(UNITS),
        default="share of booked",
        required=True,
        label_visibility="collapsed",
        key="waste_unit",
        persist_state="session",
    )
frame.chart(
    figures.waste_figure(report, curves.block_waste(report), UNITS[unit], frame.palette()),
    verdict.plain(answer.sentence),
    key="waste_chart",
)

frame.footing(report)
