"""Finding a model by family, size or how it attends, where its id is not at hand."""

from __future__ import annotations

import streamlit as st

from kvplan import catalog
from kvplan.dashboard.frame import once_opened
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.dashboard.sidebar import open_plan
from kvplan.markdown import escape
from kvplan.plan import FROM_MODEL, Plan
from kvplan.specs import describe

SHOWN = 12
"""Models listed at once; more words narrow them down."""


def draw(plan: Plan) -> None:
    """A field for words and the models they find, each a button that opens it."""
    box = st.popover("Find a model", icon=":material/search:", key="finder", on_change="rerun")
    if box := once_opened(box, "finder"):
        with box:
            _draw_finder(plan)


def _draw_finder(plan: Plan) -> None:
    words = st.text_input(
        "Family, size or attention",
        key="finder_words",
        max_chars=80,
        placeholder="qwen moe, MLA, <10b, Mamba, provisional",
        help=VIEW_HELP["finder_words"],
    )
    found = catalog.find_models(words)
    for spec in found[:SHOWN]:
        label = f"{escape(spec.name)}  :gray[{escape(describe(spec))}]"
        if st.button(label, key=f"find {spec.id}", type="tertiary"):
            open_plan(plan.model_copy(update=dict.fromkeys(FROM_MODEL) | {"model": spec.id}))
    if len(found) != len(found[:SHOWN]):
        st.caption(f"{len(found) - SHOWN} more; another word narrows them down.")
    if not found:
        st.caption("None of the models has all of these words.")
