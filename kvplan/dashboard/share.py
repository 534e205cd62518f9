"""What leaves the dashboard: the plan as a link, as Markdown and as JSON to copy, and its review as a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from urllib.parse import urlsplit

import streamlit as st

from kvplan import comparison_json, metrics, verdict
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.links import MAX_COMPARISON, encode_comparison
from kvplan.metrics import Metric
from kvplan.plan import Plan
from kvplan.plan_json import to_json
from kvplan.report import evaluate
from kvplan.snippet import snippet
from kvplan.units import count
from kvplan.verdict import Verdict

LINK, MARKDOWN, JSON = "Link", "Markdown", "JSON"
ABOUT = {
    LINK: "Every field that is set, the version, and three results to compare with.",
    MARKDOWN: "The answer and its figures for a chat or a pull request; the sentence is the link.",
    JSON: "The plan as a file: *Plan file* opens it, and *kvplan check* with limits beside it.",
}
"""What each form is."""
HEIGHT_PX = 240
"""Of a text of many lines, which scrolls."""


@st.fragment
def copy_link(
    plan: Plan,
    answer: Verdict | None = None,
    figures: list[Metric] | None = None,
    label: str = "Copy link",
    key: str = "copy_link",
    others: Sequence[Plan] = (),
) -> None:
    """The plan to copy in one of three forms, and its review to keep. `answer` and `figures` are those of the page,
    else those of the Ceiling page; `others` are plans beside it. Nothing is written before it is looked at, and looking
    draws nothing else again."""
    box = st.popover(label, icon=":material/link:", key=key, on_change="rerun")
    if not box.open:
        return
    with box:
        _draw_forms([plan, *others], answer, figures, key)
        st.caption("A capacity review to send around: the answer, its figures, assumptions and sources.")
        _draw_reviews(plan, key)


def _draw_forms(plans: Sequence[Plan], answer: Verdict | None, figures: list[Metric] | None, key: str) -> None:
    """The choice of a form, and the text in it; several plans that are too long for a link are their file."""
    form = st.segmented_control(
        "Form",
        list(ABOUT),
        default=LINK,
        required=True,
        label_visibility="collapsed",
        key=f"{key}_form",
        persist_state="session",
        help=VIEW_HELP["share_form"],
    )
    if form != JSON and len(plans) > 1 and len(encode_comparison(plans, here())) > MAX_COMPARISON:
        st.info(f"These plans are too long for a link of {count(MAX_COMPARISON)} characters. Pass on their file:")
        form = JSON
    st.caption(ABOUT[form], help=VIEW_HELP["share_form"])
    text = written(form, plans, answer, figures)
    st.code(text, language=None, wrap_lines=True, height="content" if form == LINK else HEIGHT_PX)


def written(
    form: str, plans: Sequence[Plan], answer: Verdict | None = None, figures: list[Metric] | None = None
) -> str:
    """One plan or several in one of the forms."""
    if form == JSON:
        return to_json(plans[0]) if len(plans) == 1 else comparison_json.to_json(plans)
    link = encode_comparison(plans, here())
    if form == LINK:
        return link
    report = evaluate(plans[0])
    return snippet(answer or verdict.ceiling(report), figures or metrics.ceiling(report), link)


def _draw_reviews(plan: Plan, key: str) -> None:
    base = here()
    with st.container(horizontal=True):
        for form, ending, mime in (("Markdown", "md", "text/markdown"), ("HTML", "html", "text/html")):
            st.download_button(
                f"Review, {form}",
                lambda ending=ending: review_file(plan, base, ending),
                file_name=f"kvplan-review.{ending}",
                mime=mime,
                icon=":material/download:",
                on_click="ignore",
                key=f"{key}_{ending}",
                help=VIEW_HELP["share_review"],
            )


def review_file(plan: Plan, base: str, ending: str) -> str:
    """The review of a plan as a text of this ending, `md` or `html`."""
    from kvplan.review import review
    from kvplan.review_html import html
    from kvplan.review_markdown import markdown

    report = evaluate(plan)
    found = review(report, date.today(), base)
    return html(found, report) if ending == "html" else markdown(found)


def here() -> str:
    """The address of this page as the browser sees it, without its query."""
    url = st.context.url or ""
    return url if urlsplit(url).path else f"{url}/"
