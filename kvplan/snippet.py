"""The answer to a plan in a few lines of Markdown, for a chat or a pull request."""

from __future__ import annotations

from urllib.parse import quote

from kvplan.engine_facts import ENGINE_VERSION
from kvplan.markdown import escape_line, escape_sentence, one_line
from kvplan.metrics import Metric
from kvplan.verdict import Verdict
from kvplan.version import VERSION

IN_A_LINK = "%/:?#[]@!$&'*+,;=~"
"""What may stand in the address of a Markdown link as it is; brackets and spaces would end it."""


def snippet(answer: Verdict, figures: list[Metric], link: str) -> str:
    """The answer as a link to the plan, what binds, a line for each figure, and whose rules they follow.

    >>> found = Verdict("**14 sequences** fit", "memory binds", "memory", "")
    >>> print(snippet(found, [Metric("KV pool", "34.8 GiB", "per device", "")], "https://x.org/?tp=4").splitlines()[0])
    [**14 sequences** fit](https://x.org/?tp=4): memory binds
    """
    sentence = escape_sentence(one_line(answer.sentence))
    lines = [
        f"[{sentence}]({quote(link, safe=IN_A_LINK)}): {escape_line(answer.badge)}",
        "",
        *(f"- {_figure(metric)}" for metric in figures),
        "",
        f"kvplan {escape_line(VERSION)}, rules of {escape_line(ENGINE_VERSION)}",
    ]
    return "\n".join(lines) + "\n"


def _figure(metric: Metric) -> str:
    value = f"{metric.value} {metric.unit}".strip()
    whose = f" ({escape_line(metric.whose)})" if metric.whose else ""
    return f"{escape_line(metric.label)}: **{escape_line(value)}**{whose}"
