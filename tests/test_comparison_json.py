"""Plans side by side as a file: each comes back exactly, what is good in a damaged one is kept, the rest is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan
from kvplan.comparison_json import SCHEMA, plans_from_json, to_json
from kvplan.plan_json import MAX_BYTES, plan_from_json
from kvplan.plan_json import to_json as plan_to_json
from kvplan.version import VERSION


def written(**changes) -> str:
    return json.dumps({"schema": SCHEMA, "version": VERSION, "plans": [{"tp": 4}, {"tp": 8}]} | changes)


@given(st.lists(known_plans(), min_size=1, max_size=4))
def test_plans_come_back_exactly_and_without_a_word(plans):
    assert plans_from_json(to_json(plans)) == (plans, [])
    assert plans_from_json(to_json(plans).encode()) == (plans, [])


@given(known_plans())
def test_each_of_them_is_written_as_a_plan_alone(plan):
    alone = json.loads(plan_to_json(plan))
    entry = json.loads(to_json([Plan(), plan]))["plans"][1]
    assert entry == {name: value for name, value in alone.items() if name not in ("schema", "version")}


def test_the_file_of_a_single_plan_is_that_plan():
    assert plans_from_json(plan_to_json(Plan(tp=4))) == ([Plan(tp=4)], [])


@pytest.mark.parametrize(
    ("text", "plans", "notes"),
    [
        (written(colour="red"), [4, 8], ["colour: no key of a comparison"]),
        (written(schema="kvplan.plan/1"), [4, 8], ["schema: must be kvplan.comparison/1, got 'kvplan.plan/1'"]),
        (written(name="evening", description="two"), [4, 8], []),
        (written(plans=[{"tp": 4, "x": 1}, {"tp": 8, "context": -1}]), [4, 8], [
            "x: no field of a plan", "b.context: Input should be greater than or equal to 1, got -1",
        ]),
        (written(plans=[{"tp": 4}, 7, "b", {"tp": 8}]), [4, 8], ["plans: must all be tables of fields, 2 left out"]),
        (written(plans=[{"tp": 1}] * 6), [1] * 4, ["plans: at most 4, 2 left out"]),
        ('{"plans": [{"tp": 4, "tp": 8}], "plans": []}', [4], [
            "tp: given more than once, the first counts, dropped 8",
            "plans: given more than once, the first counts, dropped []",
        ]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_the_rest_is_kept(text, plans, notes):
    found, said = plans_from_json(text)
    assert [plan.tp for plan in found] == plans
    assert said == notes


@pytest.mark.parametrize("entries", [[], {}, None, 5, "a", [1, 2], [[]]])
def test_a_file_without_any_plan_is_refused_in_one_line(entries):
    with pytest.raises(ValueError, match=r"^plans: must be a list of 1 to 4 tables of fields, got [^\n]+$"):
        plans_from_json(written(plans=entries))


@pytest.mark.parametrize("content", ["", "[]", "{", "\0", b"\xff", "[" * 100_000, " " * (MAX_BYTES + 1)])
def test_what_is_no_object_is_refused_as_for_a_plan_alone(content):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        plans_from_json(content)
    with pytest.raises(ValueError, match=r"^[^\n]+$") as alone:
        plan_from_json(content)
    assert str(refused.value) == str(alone.value)
