"""The answer in a few lines of Markdown: its link opens the plan, and nothing in it becomes markup."""

import re

from hypothesis import given
from strategies import known_plans

from kvplan import Plan, decode_link, encode_link, evaluate, metrics, verdict
from kvplan.engine_facts import ENGINE_VERSION
from kvplan.metrics import Metric
from kvplan.snippet import snippet
from kvplan.verdict import Verdict
from kvplan.version import VERSION

PLAN = Plan(model="llama-3.1-70b", tp=4, context=32768)
FIRST = re.compile(r"\[(?P<text>.*)\]\((?P<link>[^()<>\s]*)\): (?P<badge>.*)")
HOSTILE = "a](x) <b> `c` *d* _e_ & |\n# f [g](h) \\ ~~i~~ &lt;"


def written(plan, base="https://example.org/"):
    report = evaluate(plan)
    return snippet(verdict.ceiling(report), metrics.ceiling(report), encode_link(plan, base))


def unescaped(text):
    return re.sub(r"\\(.)", r"\1", text)


def test_the_snippet_of_a_plan_in_full():
    assert written(PLAN).splitlines() == [
        f"[**13 sequences** of 32,768 tokens fit on 4 × H100 SXM]({encode_link(PLAN, 'https://example.org/')}): "
        "memory binds",
        "",
        "- Batch ceiling: **13 sequences** (13.91 by memory, at 32k)",
        "- KV pool: **34.8 GiB** (per device, ± 3.2 GiB)",
        "- Cache per token: **80 KiB** (per device, 320 KiB in all)",
        "- On demand: **369 sequences** (on average, by memory)",
        "",
        f"kvplan {VERSION}, rules of {ENGINE_VERSION}",
    ]


@given(known_plans())
def test_the_link_of_a_snippet_opens_the_exact_plan(plan):
    link = FIRST.fullmatch(written(plan).splitlines()[0])["link"]
    assert decode_link(link) == (plan, [])


def test_brackets_in_a_plan_or_an_address_do_not_end_the_link():
    plan = Plan(groups="(sliding1024:5x8x128,full:1x8x128)*10")
    found = FIRST.fullmatch(written(plan, "https://example.org/a (b)<c>\\/").splitlines()[0])
    assert found["link"].startswith("https://example.org/a%20%28b%29%3Cc%3E%5C/?v=1")
    assert decode_link(found["link"]) == (plan, [])


def test_what_comes_from_outside_is_text_on_one_line():
    answer = Verdict(f"**{HOSTILE}** fit", HOSTILE, "memory", "")
    text = snippet(answer, [Metric(HOSTILE, HOSTILE, HOSTILE, "")], "https://example.org/")
    first, blank, figure, *_ = text.splitlines()
    plain = " ".join(HOSTILE.split())
    for line in (first, figure):
        bare = re.sub(r"\\.", "", line.replace("**", ""))
        assert not re.search(r"[`_*<>|#~&]", bare)
    assert blank == ""
    assert unescaped(figure) == f"- {plain}: **{plain}** ({plain})"
    assert unescaped(first) == f"[**{plain}** fit](https://example.org/): {plain}"


def test_a_figure_without_a_remark_has_no_empty_brackets():
    text = snippet(Verdict("a", "b", "limit", ""), [Metric("GPUs", "8", "", "")], "https://example.org/")
    assert "- GPUs: **8**\n" in text
