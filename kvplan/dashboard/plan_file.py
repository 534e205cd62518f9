"""The plan as a file: save this one, or open one that was saved."""

from __future__ import annotations

from functools import partial

import streamlit as st

from kvplan.comparison_json import plans_from_json
from kvplan.dashboard.frame import main_label, once
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.dashboard.sidebar import open_plan
from kvplan.differences import change_words
from kvplan.markdown import escape
from kvplan.plan import Plan
from kvplan.plan_json import MAX_MB, to_json


@st.fragment
def draw(plan: Plan) -> None:
    """Both, and what the file that was uploaded would change; drawn alone, and only once it is opened."""
    box = st.popover("Plan file", type="tertiary", key="plan_file", help=VIEW_HELP["plan_file"], on_change="rerun")
    if not box.open:
        return
    with box:
        st.download_button(
            "Save this plan",
            partial(to_json, plan),
            file_name="kvplan-plan.json",
            mime="application/json",
            icon=":material/download:",
            on_click="ignore",
            key="save_plan",
            help=VIEW_HELP["save_plan"],
        )
        uploaded = st.file_uploader(
            "Open a plan",
            type="json",
            max_upload_size=MAX_MB,
            key="open_plan",
            help=VIEW_HELP["open_plan"],
        )
        if uploaded is not None:
            _offer(plan, uploaded)


def plans_in(uploaded, key: str) -> tuple[list[Plan], list[str]] | None:
    """The plans of a file and what was dropped from it, read once and kept under the key; None, and said why, where it
    has none."""
    try:
        return once(key, uploaded.file_id, lambda: plans_from_json(uploaded.getvalue()))
    except ValueError as error:
        st.error(f"The file {escape(str(error))}", icon=":material/error:")
        return None


def _offer(plan: Plan, uploaded) -> None:
    """What the file holds beside the plan, and the button that opens it."""
    if (read := plans_in(uploaded, "plan_read")) is None:
        return
    (found, *others), notes = read
    st.caption(f"Its plan: {escape(change_words(plan, found))}")
    if st.button(main_label("Open this plan"), key="use_plan"):
        open_plan(found, notes=notes, others=others or None)
