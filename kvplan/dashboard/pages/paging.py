"""Paging: what the block size costs and saves, and what paging saved beside contiguous allocators."""

import pandas as pd
import streamlit as st

from kvplan import allocation, blocks, curves, metrics, paging_figures, verdict
from kvplan.allocators import ALLOCATORS
from kvplan.dashboard import frame
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.markdown import escape
from kvplan.units import count, round_end

UNITS = {"share of booked": "share", "tokens a sequence": "tokens"}
OF_POOL, OF_FREE = OF_WHAT = ("of the pool", "of all free slots")
MOMENTS = ("a quarter in", "half-way", "three quarters in")


def draw_trade(report, answer) -> None:
    """Both sides of the block size: what a larger one wastes, and what it saves."""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        stage = frame.choice(
            "When a sequence is looked at", curves.STAGES, "waste_stage", VIEW_HELP["waste_stage"], curves.AT_COMPLETION
        )
        unit = frame.choice("Unit of waste", UNITS, "waste_unit", VIEW_HELP["waste_unit"])
    curve = curves.block_waste(report, stage)
    left, right = st.columns(2, gap="medium")
    with left, frame.section("What a larger block costs", f"slots booked and not filled {stage}, on average"):
        figure = paging_figures.waste_figure(report, curve, UNITS[unit], frame.palette())
        frame.main_chart(figure, verdict.plain(answer.sentence), key="waste_chart")
    with right, frame.section("What a larger block saves", "entries of 4 bytes in the table of a finished sequence"):
        figure = paging_figures.table_figure(report, curve, frame.palette())
        frame.chart(figure, "A block table shrinks in proportion to the block", key="table_chart")
    st.caption(escape(verdict.half_block(report)) + ".")


def draw_table(report) -> None:
    """Block sizes row by row."""
    rows = pd.DataFrame(blocks.table(report))
    one = ("Wasted with the prompt", "At completion", "Over its life", "Table entries", "Hashed a prompt")
    decimals = dict.fromkeys(one, 1) | {"Of booked, %": 2, "Looked up a step": 0, "Tables, MiB": 2}
    with frame.section("Block sizes", "tokens a sequence on average; the tinted row is the plan's") as beside:
        with beside:
            frame.csv(rows, "kvplan-blocks.csv")
        frame.table(rows, decimals=decimals, plan_row=rows["Block"] == report.paging.block_size)
        st.caption(
            "Exact for these lengths, but for the look-ups, a model: one for each entry of the sequences that run on "
            "demand, in each layer, which kernels that read several blocks at a time do less often. Tables are the "
            "engine's, for max_num_seqs sequences of the whole context."
        )


def draw_groups(report) -> None:
    """What each group of layers wastes."""
    about = "by kind of layer; every block costs the same, whatever table it is in"
    with frame.section("In the engine's own blocks", about):
        frame.plain_table(blocks.groups(report))


def draw_allocators(report) -> None:
    """The same requests through the same pool, in one extent each or in blocks."""
    about = "where the pool's slots are while requests wait, by allocator"
    with frame.section("What paging saved", about) as beside:
        with beside:
            allocator = frame.choice("Allocator of contiguous extents", ALLOCATORS, "allocator", VIEW_HELP["allocator"])
        found = frame.once("allocators", (report.plan, allocator), lambda: allocation.compared(report, allocator))
        if found is None:
            st.caption(
                "Nothing to compare: no layer grows with its tokens, or not one request of this workload would run."
            )
            return
        frame.chart(paging_figures.shares_figure(found, frame.palette()), verdict.saved(found), key="shares_chart")
        rows = pd.DataFrame(allocation.table(found))
        frame.table(rows, decimals=dict.fromkeys(rows.columns[1:], 1))
        refusals = [f":material/block: {escape(line)}." for line in allocation.refusals(found)]
        frame.captions([escape(verdict.saved(found)) + ".", *refusals])
    draw_pool(found)


def draw_pool(found) -> None:
    """Where the extents lie in one moment, and the largest that is free in each step."""
    with frame.section(
        "A map of the pool", f"{count(found.slots)} slots of a token each, contiguous extents"
    ) as beside:
        with beside:
            moment = frame.choice("Moment of the map", MOMENTS, "map_moment", VIEW_HELP["map_moment"], MOMENTS[1])
        step = allocation.step_of(found, MOMENTS.index(moment))
        frame.chart(
            paging_figures.map_figure(found, step, frame.palette()),
            f"Extents of the pool at step {count(step)} under three contiguous allocators",
            key="map_chart",
        )
    about = "of all free slots, below 100%, what is free lies in pieces"
    with frame.section("Largest free extent", about) as beside:
        with beside:
            whole = frame.choice("Share of the largest free extent", OF_WHAT, "extent_share", VIEW_HELP["extent_share"])
        last = round_end(allocation.last_step(found))
        frame.chart(
            paging_figures.extent_figure(found, last, whole == OF_FREE, frame.palette()),
            f"Largest free extent, {whole}, against steps",
            key="extent_chart",
        )


report = frame.current_report()
answer = verdict.paging(report)
grows = report.cache.bytes_per_token > 0
with frame.below_opening(report, answer, metrics.paging(report)):
    if grows:
        draw_trade(report, answer)
if grows:
    draw_table(report)
draw_groups(report)
draw_allocators(report)
frame.footing(report)
