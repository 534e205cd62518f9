"""Links that were given away open the plan they were given away for, with the same results, in every later release.

What fails here is the change that broke the link, never the entry: see `golden_links.py`, which says how one is added.
"""

import pytest
from golden_links import FILE, add, entries

import app
from kvplan import catalog, decode_link, evaluate
from kvplan.links import MAX_PLANS, compared, decode_comparison
from kvplan.plan import Plan, from_text
from kvplan.recorded import results_of

ENTRIES = entries()
LAYER_KINDS = {
    "full", "sliding", "chunked", "mla", "compressed", "mamba1", "mamba2", "gated_deltanet", "kda", "short_conv",
}  # fmt: skip


def opens(entry):
    return decode_link(entry["link"])[0]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_a_link_opens_the_plan_it_was_given_away_for(entry):
    expected = [from_text(fields) for fields in (entry["plan"], *entry.get("others", []))]
    assert all(dropped == {} for _, dropped in expected)
    assert decode_comparison(entry["link"]) == ([plan for plan, _ in expected], entry["notes"])


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_its_plan_has_the_results_it_had(entry):
    plan = opens(entry)
    assert evaluate(plan).setting is not None
    assert list(results_of(plan)) == entry["results"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_the_results_that_a_link_carries_are_those_of_today(entry):
    found = compared(entry["link"])
    assert found is None or found.changes == ()


def test_names_are_told_apart():
    assert len({entry["name"] for entry in ENTRIES}) == len(ENTRIES)


# What there must be a link of


def test_there_is_a_full_link_to_every_page():
    addresses = {name.replace("_", "-") for listed in app.PAGES.values() for name, *_ in listed} - {app.FIRST}
    full = [entry["link"].partition("?") for entry in ENTRIES if "&r=" in entry["link"]]
    assert {"", *addresses} <= {base.rpartition("/")[2] for base, _, _ in full}


def test_there_is_a_link_of_as_many_plans_as_one_may_have():
    assert max(len(entry.get("others", [])) for entry in ENTRIES) == MAX_PLANS - 1


@pytest.mark.parametrize("kind", ["gpu", "workload"])
def test_there_is_a_link_with_every_gpu_and_every_workload(kind):
    named = {getattr(opens(entry), kind) for entry in ENTRIES}
    assert set(catalog.presets(kind)) <= named


def test_there_is_a_link_to_every_ready_plan():
    assert all(any(f"preset={name}" in entry["link"] for entry in ENTRIES) for name in catalog.presets("plan"))


def test_there_is_a_link_with_every_kind_of_layer_and_with_experts():
    models = [evaluate(opens(entry)).setting.model for entry in ENTRIES]
    assert {group.kind for model in models for group in model.groups} >= LAYER_KINDS
    assert any(model.expert_parameters for model in models)


def test_there_is_a_link_with_every_field_set():
    differing = [{name for name, value in opens(entry) if value != getattr(Plan(), name)} for entry in ENTRIES]
    assert set().union(*differing) == set(Plan.model_fields)


@pytest.mark.parametrize("part", ["made=0.0.1", "preset=", "spec=", "groups=", "table="])
def test_there_is_a_link_with(part):
    assert any(part in entry["link"] for entry in ENTRIES)


def test_there_is_a_link_that_says_nothing_of_its_making():
    assert any(not {"v=", "made=", "r="} & {f"{pair.split('=')[0]}=" for pair in query_of(entry)} for entry in ENTRIES)


def query_of(entry):
    return entry["link"].partition("?")[2].split("&")


def test_an_entry_that_is_there_is_never_written_again():
    before = FILE.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="an entry is never changed"):
        add(ENTRIES[0]["name"], "?tp=8")
    assert FILE.read_text(encoding="utf-8") == before
