"""The plans that the current one is compared with: add, open, remove."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from kvplan import curves
from kvplan.compare_words import NAMES, short_name
from kvplan.comparison_json import to_json
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.dashboard.plan_file import plans_in
from kvplan.dashboard.sidebar import compare_with, open_plan, ready_plans
from kvplan.differences import value_words
from kvplan.links import MAX_LENGTH, MAX_PLANS, decode_comparison
from kvplan.markdown import escape
from kvplan.plan import Plan
from kvplan.plan_json import MAX_MB
from kvplan.report import Report
from kvplan.specs import shorten


def others() -> list[Plan]:
    """The plans beside the current one."""
    return st.session_state["session"].others


def draw(reports: Sequence[Report]) -> None:
    """A row of what can be done: keep the current plan, add another, and open or remove each."""
    plan, room = reports[0].plan, len(reports) < MAX_PLANS
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_row"):
        kept = st.button(
            f"Keep A as {NAMES[len(reports)]}" if room else "Keep A",
            icon=":material/push_pin:",
            disabled=not room,
            key="compare_keep",
            help=VIEW_HELP["compare_keep"],
        )
        if kept:
            compare_with([*others(), plan])
        with st.popover("Add a plan", icon=":material/add:", disabled=not room, key="compare_add"):
            _draw_add()
        for name, report in zip(NAMES[1:], reports[1:], strict=False):
            with st.popover(escape(short_name(reports[0], name, report)), key=f"compare_{name}"):
                _draw_other(plan, name, report.plan)
        st.download_button(
            "Save all",
            partial(to_json, [plan, *others()]),
            file_name="kvplan-comparison.json",
            mime="application/json",
            type="tertiary",
            icon=":material/download:",
            on_click="ignore",
            key="compare_save",
            help=VIEW_HELP["compare_save"],
        )


def draw_variants(report: Report) -> None:
    """The plan with one thing changed, a button each."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_variants"):
        st.markdown(":gray[Or with one change:]", width="content")
        for variant in curves.comparisons(report, curves.plan_ceilings(report)):
            if st.button(escape(variant.name), key=f"compare_with {variant.name}"):
                compare_with([report.plan.model_copy(update=variant.changes)])


def _draw_add() -> None:
    """A ready plan, or a link with one plan or several."""
    ready = st.selectbox(
        "Ready plan",
        ready_plans(),
        format_func=lambda name: ready_plans()[name].name,
        index=None,
        placeholder="choose one",
        key="compare_ready",
        help=VIEW_HELP["ready_plan"],
    )
    if st.button("Add this plan", disabled=ready is None, key="compare_add_ready"):
        compare_with([*others(), ready_plans()[ready].plan])
    link = st.text_input(
        "Link", max_chars=MAX_LENGTH, placeholder="paste one", key="compare_link", help=VIEW_HELP["compare_link"]
    )
    if st.button("Add its plans", disabled=not link.strip(), key="compare_add_link"):
        _add(*decode_comparison(link), origin="link")
    uploaded = st.file_uploader(
        "File", type="json", max_upload_size=MAX_MB, key="compare_file", help=VIEW_HELP["compare_file"]
    )
    if uploaded is not None:
        _offer(uploaded)


def _offer(uploaded) -> None:
    """The button that adds the plans of a file."""
    if (read := plans_in(uploaded, "compare_read")) is not None and st.button("Add its plans", key="compare_add_file"):
        _add(*read, origin="file")


def _draw_other(plan: Plan, name: str, other: Plan) -> None:
    """What sets a plan apart, and what can be done with it."""
    st.markdown(escape(shorten(f"{name}: {value_words(plan, other)}", 300)))
    if st.button("Make it A, and A it", key=f"compare_open_{name}", help=VIEW_HELP["compare_open"]):
        open_plan(other, others=[plan if each is other else each for each in others()])
    if st.button("Remove", key=f"compare_remove_{name}", help=VIEW_HELP["compare_remove"]):
        compare_with([kept for kept in others() if kept is not other])


def _add(plans: Sequence[Plan], notes: Sequence[str], origin: str) -> None:
    """As many as there is room for; what is too many is said."""
    wanted = [*others(), *plans]
    kept = wanted[: len(NAMES[1:])]
    if kept != wanted:
        notes = [*notes, f"compare: at most {MAX_PLANS} plans, {len(wanted[len(kept) :])} left out"]
    compare_with(kept, notes, origin)
