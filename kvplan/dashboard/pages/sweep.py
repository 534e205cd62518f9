"""Sweep: one quantity of many plans as a map over two fields, a third at a time, and each of them a plan to open."""

from functools import partial

import pandas as pd
import streamlit as st

from kvplan import metrics, sweep_figures, sweep_grid, sweep_words, verdict
from kvplan.dashboard import frame, share, sweep_inputs
from kvplan.dashboard.sidebar import open_plan
from kvplan.markdown import escape, escape_sentence

CEILING = "kvplan/dashboard/pages/ceiling.py"
CHART = "sweep_map"


def look_at(found) -> tuple[int, int]:
    """The cell that is looked at, by its column and row, in words and as a plan to open."""
    grid = found.grid
    with st.container(horizontal=True, vertical_alignment="bottom", key="sweep_cell"):
        column, row = sweep_inputs.cell(grid.x, grid.y)
        plan = sweep_grid.plan_at(found, column, row)
        if st.button(frame.main_label("Open as plan"), icon=":material/open_in_full:", key="sweep_open"):
            open_plan(plan, CEILING)
        share.copy_link(plan, label="Link of this plan", key="sweep_link")
    st.markdown(escape_sentence(sweep_words.cell_words(found, column, row)))
    return column, row


def draw_table(report, found) -> None:
    """The plans of the map row by row, and the whole grid as a command."""
    rows = pd.DataFrame(sweep_words.table(found))
    with frame.section("Plan by plan", "those of the map") as beside:
        with beside:
            frame.csv(rows, "kvplan-sweep.csv")
        frame.long_table(rows, key="sweep_table")
    with st.expander("The same in a shell, with every value of every axis", type="compact", key="sweep_command"):
        st.code(sweep_words.command(report.plan, found.grid), language="bash", wrap_lines=True)


def draw_grid(report, grid, limit, top) -> None:
    """The answer, at the top, the map, the cell that is looked at, and the table."""
    quantity, chart = grid.quantity, st.container(gap="xsmall")
    with chart, frame.section(f"{quantity.name}, {quantity.unit}", quantity.about) as beside, beside:
        chosen = 0 if grid.third is None else sweep_inputs.one_of(grid.third)
    found = sweep_grid.Map(grid, chosen)
    answer = sweep_words.opening(found, limit)
    with top:
        frame.opening(report, answer, sweep_words.metrics(found, sweep_grid.own_cell(report.plan, quantity)))
    place = look_at(found)
    with chart:
        figure = sweep_figures.map_figure(found, limit, place, frame.palette())
        picked = partial(sweep_inputs.choose, CHART, grid.x, grid.y)
        frame.main_chart(figure, verdict.plain(answer.sentence), key=CHART, on_click=picked)
        st.caption(escape(sweep_words.legend(found, limit)))
    frame.captions(f":material/info: {escape(line)}." for line in sweep_words.notes(report, grid))
    draw_table(report, found)


def draw_page() -> None:
    report = frame.current_report()
    top = st.container()
    quantity, limit, *axes = sweep_inputs.draw(report)
    try:
        grid = frame.once(
            "sweep_grid", (report.plan, quantity, axes), lambda: sweep_grid.grid(report.plan, quantity, *axes)
        )
    except ValueError as error:
        with top:
            frame.opening(report, verdict.ceiling(report), metrics.ceiling(report))
        st.error(escape(str(error)), icon=":material/error:")
    else:
        draw_grid(report, grid, limit, top)
    frame.footing(report)


draw_page()
