"""What a link says of its making, and how its results compare with today's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, encode_link
from kvplan.links import compared
from kvplan.recorded import (
    LONGEST_VERSION,
    MOST_DIGITS,
    Recorded,
    Results,
    compare,
    recorded_in,
    results_from_text,
    results_of,
    results_text,
)
from kvplan.version import VERSION

PLAN = Plan(model="llama-3.1-70b", tp=4, context=32768)
NOW = results_of(PLAN)


def said(made=None, **changed):
    return compare(Recorded(made, NOW._replace(**changed)), PLAN)


@given(known_plans())
def test_a_full_link_of_today_agrees_with_today_in_one_sentence(plan):
    found = compared(encode_link(plan))
    assert found.changes == ()
    assert found.lines == (found.sentence,)
    assert f"(kvplan {VERSION}, as now)" in found.sentence


def test_a_link_that_says_nothing_of_its_making_is_compared_with_nothing():
    assert compared(encode_link(PLAN, full=False)) is None
    assert compared("") is None
    assert compared({}) is None


def test_a_link_with_a_version_alone_says_only_which_wrote_it():
    found = compared("?tp=4&made=0.0.1")
    assert found.lines == ("The link was written by kvplan 0.0.1 and carries no results to compare with.",)


def test_results_of_an_older_version_that_are_still_so_name_both_versions():
    found = said("0.0.1")
    assert found.changes == ()
    assert found.sentence.startswith("Batch ceiling, KV cache tokens and pool are still those the link recorded")
    assert f"(kvplan 0.0.1, now {VERSION})" in found.sentence


def test_every_result_that_changed_has_a_line_with_both_values_the_difference_and_its_share():
    found = said("0.0.1", batch_ceiling=NOW.batch_ceiling - 1, pool_bytes=NOW.pool_bytes + 2**30)
    assert found.sentence == f"This link recorded other results than its plan has now (kvplan 0.0.1, now {VERSION})."
    assert found.changes == (
        "Batch ceiling: 12 → 13 sequences, +1 (+8.3%)",
        "Pool of one device: 35.78 GiB → 34.78 GiB, -1.00 GiB (-2.8%)",
    )


def test_a_change_that_would_round_to_nothing_is_still_a_change():
    found = said("0.0.1", kv_cache_tokens=NOW.kv_cache_tokens + 1, pool_bytes=NOW.pool_bytes - 3 * 2**20)
    assert found.changes == (
        "KV cache tokens: 455,889 → 455,888 tokens, -1 (under 0.1%)",
        "Pool of one device: 34.78 GiB → 34.78 GiB, +3 MiB (under 0.1%)",
    )


def test_a_result_that_was_nothing_has_no_share():
    assert said("0.0.1", batch_ceiling=0).changes == ("Batch ceiling: 0 → 13 sequences, +13",)


def test_the_same_version_with_other_results_says_that_something_else_was_changed():
    found = said(VERSION, batch_ceiling=99)
    assert "Its fields were edited since, or a preset was." in found.sentence
    assert "edited" not in said("0.0.1", batch_ceiling=99).sentence


def test_results_without_a_version_are_compared_all_the_same():
    assert f"(a version not named, now {VERSION})" in said(None, batch_ceiling=99).sentence
    assert f"(a version not named, now {VERSION})" in said(None).sentence


@pytest.mark.parametrize("query", ["colour=red", "context=0", "v=9"])
def test_a_link_that_was_not_read_in_full_says_so_of_the_comparison(query):
    link = encode_link(PLAN)
    assert "Not all of the link was read" in compared(f"{link}&{query}").sentence
    assert "Not all" not in compared(link).sentence


def test_a_field_that_was_dropped_shows_in_the_results_and_the_sentence_says_why():
    link = encode_link(PLAN).replace("tp=4", "tp=0")
    found = compared(link)
    assert "Not all of the link was read" in found.sentence
    assert found.changes


@given(st.builds(Results, *[st.integers(0, 10**MOST_DIGITS - 1)] * 3))
def test_results_come_back_out_of_their_text(results):
    assert results_from_text(results_text(results)) == results


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.-3", "1.2.3 ", "1.2.²", "١.2.3", "1.2.", "1.2." + "9" * 5000]
)
def test_what_is_not_three_whole_numbers_is_no_result(text):
    assert results_from_text(text) is None
    assert recorded_in({"r": text, "made": "0.0.1"}) == Recorded("0.0.1", None)


def test_a_version_is_cut_and_one_line():
    assert recorded_in({"made": "x" * 1000}).made == "x" * (LONGEST_VERSION - 1) + "…"
    assert recorded_in({"made": "0.1\n# no"}).made == "0.1?# no"
    assert recorded_in({"made": "  "}).made is None


@given(st.dictionaries(st.sampled_from(["v", "made", "r", "tp", "model", "x"]), st.text(max_size=30)))
def test_any_link_is_compared_without_an_exception_and_in_short_lines(link):
    found = compared(link)
    assert found is None or all(len(line) < 400 and len(line.splitlines()) == 1 for line in found.lines)


@pytest.mark.parametrize("link", [None, 5, "x" * 20_000, {"r": [1, 2]}, {"made": None}, {"made": 10**5000}])
def test_what_is_no_link_is_compared_with_nothing_or_names_its_version(link):
    found = compared(link)
    assert found is None or found.changes == ()
