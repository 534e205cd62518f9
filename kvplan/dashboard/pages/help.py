"""Help: how near the numbers come to what engines print and to what was measured, and why an engine may differ."""

from pathlib import Path

import pandas as pd
import streamlit as st

from kvplan import accuracy, accuracy_document, rate_accuracy, rate_document
from kvplan.dashboard import frame
from kvplan.dashboard.text import escape_sentence
from kvplan.version import VERSION

DIFFERENCES = Path(__file__).parents[3] / "docs" / "why-the-engine-says-something-else.md"

frame.link_notes()
st.header("Accuracy", anchor="accuracy")
st.markdown(escape_sentence(accuracy_document.opening()))
frame.plain_table(accuracy_document.summary_table())
st.caption("Errors are shares of one device's memory: 1% of an H100 is 0.8 GiB.")

frame.heading("Pools", "predicted from scratch beside posted, per device, the largest misses first")
st.dataframe(pd.DataFrame(accuracy.pool_table()), hide_index=True, key="pools")

frame.heading("Figures from the posted pool", "tokens, blocks and concurrency; those that do not follow first")
st.dataframe(pd.DataFrame(accuracy.figure_table()), hide_index=True, key="figures")

frame.heading("Weights as loaded", "where an engine keeps 1% more or less than what is counted for its plan")
st.dataframe(pd.DataFrame(accuracy.weight_table()), hide_index=True, key="weights")

frame.heading("What the estimate covers", "and where the public figures do not carry it")
frame.plain_table(accuracy_document.support_table())

frame.heading("Constants", "of each release of vLLM, read from the start-ups marked as in sample")
frame.plain_table(accuracy_document.constants_table())

frame.heading("Parameters", "counted, where a published count is another")
st.dataframe(pd.DataFrame(accuracy_document.parameter_table()), hide_index=True, key="parameters")

st.header("Step times", anchor="step-times")
st.markdown(escape_sentence(rate_document.opening()))
frame.heading("Published points", "predicted with the default factors beside measured; decode, prefill, saturated")
st.dataframe(pd.DataFrame(rate_accuracy.table()), hide_index=True, key="rates")
frame.heading("Factors", "shares of the peaks and seconds, with their spread and where each was read")
frame.plain_table(rate_document.factor_table())

title, _, differences = DIFFERENCES.read_text(encoding="utf-8").partition("\n")
frame.heading(title.lstrip("# "), "twenty differences that planners run into; each plan opens in a tab of its own")
with st.expander("All twenty", key="differences"):
    st.markdown(differences.replace("http://localhost:8501/?", "./?"))

st.caption(f"kvplan {VERSION}")
