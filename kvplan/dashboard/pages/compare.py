"""Compare: up to four plans side by side, what differs between them and by how much, on one link."""

import pandas as pd
import streamlit as st

from kvplan import compare_curves, compare_figures, compare_words, evaluate
from kvplan.dashboard import compared, frame

CHARTS = {
    "Batch ceiling against context": (compare_curves.ceilings, compare_figures.ceilings_figure),
    "Slot-steps used by static batches": (compare_curves.utilisations, compare_figures.utilisations_figure),
    "Output rate against batch": (compare_curves.outputs, compare_figures.outputs_figure),
    "Paging waste against block size": (compare_curves.wastes, compare_figures.wastes_figure),
}
"""Each chart's heading, what gives its curves and what draws them."""
NONE = "None of these plans has such a curve."


def draw_chart(reports, title, curves_of, figure_of) -> None:
    """The curves of every plan in one picture."""
    curves = curves_of(reports)
    if any(curves):
        with frame.section(title):
            conclusion = compare_words.conclusion(title, curves)
            frame.chart(figure_of(curves, frame.palette()), conclusion, key=f"compare {title}")
    else:
        frame.nothing(title, NONE, compare_figures.HEIGHT)


def draw_charts(reports) -> None:
    """Two beside each other."""
    charts = list(CHARTS.items())
    for pair in (charts[:2], charts[2:]):
        for column, (title, makers) in zip(st.columns(2, gap="medium"), pair, strict=True):
            with column:
                draw_chart(reports, title, *makers)


def draw_tables(reports) -> None:
    """What differs going in and coming out."""
    inputs = compare_words.input_table(reports)
    with frame.section("Inputs that differ", "a plan's own word, or what an open field comes to"):
        if inputs:
            frame.plain_table(inputs)
        else:
            st.caption("None: these plans are the same.")
    with frame.section("Results", "in brackets: more or less than A, and how many times A's") as row:
        with row:
            frame.csv(pd.DataFrame(compare_words.result_rows(reports)), "kvplan-comparison.csv")
        frame.plain_table(compare_words.result_table(reports))
        if part := frame.folded("How each is counted", "compare_counted"):
            with part:
                frame.plain_table(compare_words.how_counted(reports))


def draw_page() -> None:
    report = frame.current_report()
    reports = [report, *map(evaluate, compared.others())]
    if len(reports) == 1:
        frame.opening(report, compare_words.alone(report), compare_words.metrics(reports))
        compared.draw(reports)
        compared.draw_variants(report)
    else:
        answer, shown = compare_words.opening(reports), compare_words.metrics(reports)
        with frame.below_opening(report, answer, shown, compared.others()):
            compared.draw(reports)
            draw_charts(reports)
        draw_tables(reports)
    frame.footing(report)


draw_page()
