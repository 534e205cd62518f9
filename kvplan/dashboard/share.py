"""What leaves the dashboard: the link to copy, and the review of the plan as a file."""

from __future__ import annotations

from datetime import date
from urllib.parse import urlsplit

import streamlit as st

from kvplan.links import encode_link
from kvplan.plan import Plan


def copy_link(plan: Plan, label: str = "Copy link", key: str = "copy_link") -> None:
    """The full link of the plan, ready to copy: every field that is set, the version and three results; below it the
    review of the plan, which is written when it is asked for."""
    here = _here()
    with st.popover(label, icon=":material/link:", key=key):
        st.caption("Every field that is set, the link format, and three results to compare with.")
        st.code(encode_link(plan, here), language=None, wrap_lines=True)
        st.caption("A capacity review to send around: the answer, its figures, assumptions and sources.")
        with st.container(horizontal=True):
            for form, ending, mime in (("Markdown", "md", "text/markdown"), ("HTML", "html", "text/html")):
                st.download_button(
                    f"Review, {form}",
                    lambda ending=ending: review_file(plan, here, ending),
                    file_name=f"kvplan-review.{ending}",
                    mime=mime,
                    icon=":material/download:",
                    on_click="ignore",
                    key=f"{key}_{ending}",
                )


def review_file(plan: Plan, base: str, ending: str) -> str:
    """The review of a plan as a text of this ending, `md` or `html`."""
    from kvplan.report import evaluate
    from kvplan.review import review
    from kvplan.review_html import html
    from kvplan.review_markdown import markdown

    report = evaluate(plan)
    found = review(report, date.today(), base)
    return html(found, report) if ending == "html" else markdown(found)


def _here() -> str:
    """The address of this page as the browser sees it, without its query."""
    url = st.context.url or ""
    return url if urlsplit(url).path else f"{url}/"
