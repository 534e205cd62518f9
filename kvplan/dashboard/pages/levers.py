"""Levers: one change at a time, and what each does to the ceiling and to the cost of a token."""

import pandas as pd
import streamlit as st

from kvplan import lever_ideas, levers, levers_figures, levers_words
from kvplan.dashboard import frame
from kvplan.links import encode_link
from kvplan.markdown import escape


def draw_charts(report, found) -> None:
    """Both tornadoes: the ceiling and the cost."""
    _, _, for_ceiling, for_cost = levers_words.metrics(report, found)
    left, right = st.columns(2, gap="medium")
    with left, frame.section("What moves the ceiling", "sequences that run; in outline what memory would hold"):
        figure = levers_figures.ceiling_figure(found, frame.palette())
        frame.main_chart(figure, f"{for_ceiling.label}: {for_ceiling.value}, {for_ceiling.whose}", key="levers_ceiling")
    with right, frame.section("What moves the cost", "of a million output tokens, at each plan's own ceiling"):
        if found.priced:
            figure = levers_figures.cost_figure(found, frame.palette())
            frame.chart(figure, f"{for_cost.label}: {for_cost.value}, {for_cost.whose}", key="levers_cost")
    about = filter(None, (levers_words.about_cost(found), levers_words.about_price(report, found)))
    frame.captions(f"{escape(line)}." for line in about)


def draw_table(found) -> None:
    """Every lever that is offered; its name opens its plan."""
    rows = pd.DataFrame(levers_words.table(found))
    links = {lever.name: encode_link(lever.plan, "./", full=False) for lever in found.offered}
    linked = [f"[{escape(name)}](<{links[name]}>)" if name in links else name for name in rows["Lever"]]
    decimals = {"USD/M tokens": levers_words.cost_decimals(found), "TPOT, ms": 1}
    with frame.section("Lever by lever", "a name opens its plan; the tinted row is this one") as beside:
        with beside:
            frame.csv(rows, "kvplan-levers.csv")
        frame.table(
            rows.assign(Lever=linked),
            decimals={name: decimals[name] for name in decimals if name in rows},
            plan_row=~rows["Lever"].isin(links),
        )


def draw_page() -> None:
    report = frame.current_report()
    found = frame.once("levers", report.plan, lambda: levers.levers(report))
    with frame.below_opening(report, levers_words.opening(report, found), levers_words.metrics(report, found)):
        if found.offered:
            draw_charts(report, found)
    if found.offered:
        draw_table(found)
    meanings = "; ".join(f"**{word}**: {meaning}" for word, meaning in lever_ideas.QUALITIES.items())
    if part := frame.folded("What each lever changes, and why others are not offered", "lever_sources"):
        with part:
            frame.plain_table(levers_words.sources(found))
    st.caption(f"kvplan does not model quality. {meanings}. Fewer KV heads save memory and bandwidth, not FLOPs.")
    frame.footing(report)


draw_page()
