"""The link to copy."""

from __future__ import annotations

import streamlit as st

from kvplan.links import encode_link
from kvplan.plan import Plan


def copy_link(plan: Plan) -> None:
    """The full link of the plan, ready to copy: every field, the version and three results."""
    with st.popover("Copy link", icon=":material/link:", key="copy_link"):
        st.caption("Opens this plan with these numbers, whatever the defaults become.")
        st.code(encode_link(plan, st.context.url or ""), language=None, wrap_lines=True)
