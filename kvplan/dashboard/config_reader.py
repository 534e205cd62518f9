"""A pasted or uploaded config.json becomes a plan whose link carries the whole model."""

from __future__ import annotations

import streamlit as st

from kvplan.dashboard.frame import main_label
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.dashboard.sidebar import open_plan
from kvplan.hf_config import MAX_BYTES, MAX_MB, model_from_hf_config
from kvplan.markdown import escape
from kvplan.plan import FROM_MODEL, Plan
from kvplan.specs import ModelSpec
from kvplan.texts import MAX_TEXT, spec_text

CLEARED = dict.fromkeys(name for name in FROM_MODEL if name != "spec")


def draw(plan: Plan) -> None:
    """The reader, and the way back to the preset once a model has been read."""
    with st.popover("Read a config.json", icon=":material/upload_file:", key="config"):
        st.caption("The config.json of a model, as it stands on the Hugging Face Hub. Nothing is fetched or kept.")
        uploaded = st.file_uploader(
            "Upload", type="json", max_upload_size=MAX_MB, key="config_file", help=VIEW_HELP["config_file"]
        )
        pasted = st.text_area(
            "or paste",
            height=160,
            key="config_text",
            max_chars=MAX_BYTES,
            help=VIEW_HELP["config_text"],
        )
        if st.button(main_label("Use this model"), key="use_config"):
            text = uploaded.getvalue() if uploaded else pasted
            try:
                packed = _packed(model_from_hf_config(_given(text)))
            except ValueError as error:
                st.error(escape(str(error)))
            else:
                open_plan(plan.model_copy(update=CLEARED | {"spec": packed}))
    if plan.spec is not None and st.button("Back to the preset", type="tertiary", key="drop_spec"):
        open_plan(plan.model_copy(update=CLEARED | {"spec": None}))


def _given(text: str | bytes) -> str | bytes:
    if not text.strip():
        raise ValueError("config: paste or upload one first")
    return text


def _packed(model: ModelSpec) -> str:
    packed = spec_text(model)
    if len(packed) > MAX_TEXT:
        raise ValueError(f"config: its layers take more than the {MAX_TEXT:,} characters a link can carry")
    return packed
