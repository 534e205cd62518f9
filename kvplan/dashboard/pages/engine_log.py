"""Engine log: what a start-up measured, beside the prediction for the same start, and why they differ."""

from urllib.parse import urlencode

import streamlit as st

from kvplan import log_comparison, verdict
from kvplan.dashboard import documents, frame, share
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.dashboard.sidebar import open_plan
from kvplan.engine_log import parse_engine_log
from kvplan.links import short_query
from kvplan.log_text import MAX_BYTES, MAX_MIB, decoded
from kvplan.markdown import escape, escape_sentence

frame.link_notes()
st.header("Paste your engine's log", anchor=False)
st.markdown(
    ":gray[vLLM, SGLang, TensorRT-LLM, llama.cpp or lmdeploy, from the start to the cache size or the error. What the "
    "log leaves open is the sidebar's. Nothing is kept.]"
)
paste, upload = st.columns([3, 1], gap="medium")
with upload:
    uploaded = st.file_uploader("Upload", max_upload_size=MAX_MIB, key="log_file", help=VIEW_HELP["log_file"])
with paste:
    pasted = st.text_area(
        "Start-up log",
        height=160,
        key="log_text",
        max_chars=MAX_BYTES,
        placeholder="Paste it here",
        help=VIEW_HELP["log_text"],
    )

text = decoded(uploaded.getvalue()) if uploaded else pasted
if text.strip():
    log = frame.once("log_read", text, lambda: parse_engine_log(text))
    found = log_comparison.compare(log, base=frame.current_report().plan)
    st.subheader(escape_sentence(verdict.engine_log(found)), anchor=False)
    if found.log.starts > 1:
        st.caption(f"The last of {found.log.starts} starts in the text.")
    if found.log.error:
        st.error(f"This start failed: {escape(found.log.error)}", icon=":material/error:")
    if found.rows:
        with frame.section("Measured beside predicted", "per device; from scratch, and from the log's own pool"):
            frame.plain_table(log_comparison.table(found.rows))
    for reason in found.reasons:
        st.markdown(f"**{escape(reason.figure)}** :gray-badge[{escape(reason.name)}] {escape(reason.sentence)}.")
    for line in found.missing:
        st.caption(f":material/help: {escape(line)}")
    if found.report:
        with st.container(horizontal=True, vertical_alignment="center"):
            if st.button(frame.main_label("Make this my plan"), icon=":material/tune:", key="calibrate"):
                open_plan(found.calibrated)
            share.copy_link(found.calibrated, label="Link of the calibrated plan", key="calibrated_link")
    if found.log.lines:
        with st.expander("What was read, and where", type="compact", key="read_lines"):
            frame.plain_table(log_comparison.read_lines(found.log))
else:
    st.caption(
        "With a log: what this start measured beside what is predicted for it, the likely reason of each difference, "
        "and the plan that it makes."
    )
reasons = documents.address(documents.REASONS, urlencode(short_query(frame.current_report().plan)))
st.markdown(f":material/help: [Why engines say something else: twenty reasons]({reasons})")
