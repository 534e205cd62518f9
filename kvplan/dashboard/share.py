"""The link to copy."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from kvplan.links import encode_link
from kvplan.plan import Plan


def copy_link(plan: Plan, label: str = "Copy link", key: str = "copy_link") -> None:
    """The full link of the plan, ready to copy: every field that is set, the version and three results."""
    with st.popover(label, icon=":material/link:", key=key):
        st.caption("Every field that is set, the link format, and three results to compare with.")
        st.code(encode_link(plan, _here()), language=None, wrap_lines=True)


def _here() -> str:
    """The address of this page as the browser sees it, without its query."""
    url = st.context.url or ""
    return url if urlsplit(url).path else f"{url}/"
