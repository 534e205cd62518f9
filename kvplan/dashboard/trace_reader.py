"""An uploaded trace becomes the plan's lengths and traffic; its link carries a summary, the rows stay here."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st

from kvplan.dashboard.frame import main_label, once, once_opened
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.dashboard.sidebar import open_plan
from kvplan.markdown import escape
from kvplan.plan import FROM_TRACE, Plan
from kvplan.traces import ROLES, Trace, read_trace, remarks, with_trace
from kvplan.units import count, mean

MAX_TRACE_MB = 64
"""What the server takes at all (.streamlit/config.toml); packed with gzip, files of several times that fit."""
MAX_ROWS = 2_000_000
"""A row is kept in some 25 bytes for as long as the session lasts; a shell reads longer files."""


def trace_read() -> Trace | None:
    """The trace that was uploaded, or the last one of this session that could be read. A page asks before the sidebar
    is drawn, which says what is wrong with an upload."""
    uploaded = st.session_state.get("trace_file")
    if uploaded is not None:
        with suppress(ValueError):
            return _read(uploaded)
    return st.session_state.get("trace_read", (None, None))[1]


def draw(plan: Plan) -> None:
    """The reader, and the way back to the workload once a trace has been read."""
    box = st.popover("Read a trace", icon=":material/upload_file:", key="trace", on_change="rerun")
    if box := once_opened(box, "trace"):
        with box:
            _draw_reader(plan)
    if plan.table is not None and st.button("Back to the workload", type="tertiary", key="drop_table"):
        open_plan(plan.model_copy(update=dict.fromkeys(FROM_TRACE)))


def _draw_reader(plan: Plan) -> None:
    """The upload, the names of its columns, and what it holds."""
    st.caption(
        "Your own requests: CSV or JSON with prompt and output tokens and, if there are any, times. Nothing is kept; "
        "the link carries a summary of the lengths."
    )
    uploaded = st.file_uploader("Upload", max_upload_size=MAX_TRACE_MB, key="trace_file", help=VIEW_HELP["trace_file"])
    with st.expander("Columns, where the guess is wrong", type="compact", key="trace_columns"):
        for role in ROLES:
            st.text_input(f"{role.capitalize()} from", key=f"trace_{role}", help=VIEW_HELP["trace_columns"])
    if uploaded is not None:
        _offer(plan, uploaded)


def _offer(plan: Plan, uploaded) -> None:
    """What the file holds and how it was read, and the button that takes it."""
    try:
        trace = _read(uploaded)
    except ValueError as error:
        st.error(escape(str(error)))
        return
    st.markdown(f"**{count(trace.prompts.size)} requests** of {count(trace.rows)} rows, {escape(trace.format)}")
    prompt, output = mean(float(trace.prompts.mean())), mean(float(trace.outputs.mean()))
    st.caption(f"means: prompt {prompt}, output {output} tokens")
    for line in remarks(trace):
        st.caption(f":material/info: {escape(line)}")
    if st.button(main_label("Use this trace"), key="use_trace"):
        open_plan(with_trace(plan, trace))


def _read(uploaded) -> Trace:
    """The trace, read once for each file and choice of columns. Raises ValueError where there is none."""
    columns = {role: name for role in ROLES if (name := st.session_state.get(f"trace_{role}"))}
    return once("trace_read", (uploaded.file_id, tuple(columns.items())), lambda: _with_progress(uploaded, columns))


def _with_progress(uploaded, columns: dict[str, str]) -> Trace:
    bar = st.progress(0.0, "Reading")
    try:
        uploaded.seek(0)
        return read_trace(uploaded, uploaded.name, columns, lambda done, total: _show(bar, done, total), MAX_ROWS)
    finally:
        bar.empty()


def _show(bar, done: int, total: int) -> None:
    bar.progress(min(1.0, done / total) if total else 0.0, "Reading")
