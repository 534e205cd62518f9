"""The values of an axis: checked as a plan checks them, and read from the text of a shell."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from strategies import FIELDS

from kvplan import Plan
from kvplan.axes import MOST_VALUES, axis_from_text, axis_values
from kvplan.plan import to_text

# Values


@given(st.data(), st.sampled_from(sorted(FIELDS)))
def test_every_value_a_plan_holds_is_a_value_of_an_axis(data, name):
    values = [getattr(Plan(**{name: value}), name) for value in data.draw(st.lists(FIELDS[name], min_size=1))]
    assert axis_values(name, values) == values


@given(st.lists(st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=4), st.none()), min_size=1))
def test_an_axis_takes_what_a_plan_takes_and_nothing_else(values):
    def taken(value):
        try:
            return [Plan.model_validate({"context": value}).context]
        except ValidationError:
            return []

    wanted = [one for value in values for one in taken(value)]
    if len(wanted) == len(values):
        found = axis_values("context", values)
        assert (found, set(map(type, found))) == (wanted, {int})
    else:
        with pytest.raises(ValueError, match=r"^context: (Input should be|Unable to parse input) .*, got "):
            axis_values("context", values)


def test_whole_numbers_become_real_ones_where_a_field_is_real():
    found = axis_values("gpu_memory_gib", [24, 80])
    assert found == [24.0, 80.0]
    assert set(map(type, found)) == {float}


def test_numpy_arrays_and_ranges_are_lists_of_values():
    assert axis_values("context", np.array([1024, 2048])) == axis_values("context", range(1024, 2049, 1024))
    assert type(axis_values("context", np.array([1024]))[0]) is int


def test_one_and_true_stay_apart():
    with pytest.raises(ValueError, match=r"^context: Input should be a number, got True$"):
        axis_values("context", [1, True])


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("contxt", [1], "contxt: no field of a plan; nearest: context"),
        ("context", [], f"context: an axis has 1 to {MOST_VALUES:,} values, got 0"),
        ("context", range(20_000_000), f"context: an axis has 1 to {MOST_VALUES:,} values, got 20,000,000"),
        ("context", "1024", "context: an axis is a list of values, got '1024'"),
        ("context", 1024, "context: an axis is a list of values, got 1024"),
        ("context", [[1024]], "context: a value is a number, a word or None, got [1024]"),
        ("context", [1024, math.nan], "context: Input should be a finite number, got nan"),
        ("context", [0, 5], "context: Input should be greater than or equal to 1, got 0"),
        ("context", [5, 2**25], "context: Input should be less than or equal to 16777216, got 33554432"),
    ],
)  # fmt: skip
def test_what_is_no_axis_is_named_with_the_rule_and_the_value(name, values, message):
    with pytest.raises(ValueError, match=r".") as error:
        axis_values(name, values)
    assert str(error.value) == message


# Text


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("context", "1024", [1024]),
        ("context", "1024, 4096,1024", [1024, 4096]),
        ("context", "1024:4096:1024", [1024, 2048, 3072, 4096]),
        ("context", "1000:4096:1024", [1000, 2024, 3048, 4072]),
        ("context", "1024:131072:x4", [1024, 4096, 16384, 65536]),
        ("context", "1024:131072:log8", [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]),
        ("context", "1:4:lin2,9", [1, 4, 9]),
        ("context", "1:3:log9", [1, 2, 3]),
        ("gpu_memory_utilization", "0.8:0.95:0.05", [0.8, 0.85, 0.9, 0.95]),
        ("gpu_memory_gib", "24:80:lin3", [24.0, 52.0, 80.0]),
        ("max_num_seqs", "auto,64", [None, 64]),
        ("kv_dtype", "auto,bfloat16,bf16", ["auto", "bf16"]),
        ("enforce_eager", "true,false", [True, False]),
        ("gpu", "h100-sxm,l4", ["h100-sxm", "l4"]),
    ],
)
def test_lists_and_ranges_are_read(name, text, values):
    assert axis_from_text(name, text) == values


@given(st.sampled_from(sorted(set(FIELDS) - {"groups", "spec", "table"})), st.data())
def test_a_value_as_the_link_writes_it_is_read_back(name, data):
    value = getattr(Plan(**{name: data.draw(FIELDS[name])}), name)
    text = to_text(Plan(**{name: value}))[name]
    assert axis_from_text(name, text) == [value]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5:1:1", "context: a range goes up, got 5:1:1"),
        ("1:5:0", "context: the step of a range is above 0, got 0"),
        ("1:5:x1", "context: a range by a factor starts above 0 and its factor is above 1, got 1"),
        ("0:5:log3", "context: a range in the logarithm starts above 0, got 0"),
        ("1:5:lin2.5", "context: a range has a whole number of values, got 2.5"),
        ("1:9999999999:1", f"context: an axis has 1 to {MOST_VALUES:,} values, got 9,999,999,999"),
        ("1:2:3:4", "context: a range is first:last:step, first:last:x2, first:last:lin25 or first:last:log25, got "
                    "'1:2:3:4'"),
        ("", "context: Input should be a valid integer, unable to parse string as an integer, got ''"),
    ],
)  # fmt: skip
def test_what_is_no_range_is_named_with_the_rule_and_the_value(text, message):
    with pytest.raises(ValueError, match=r".") as error:
        axis_from_text("context", text)
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["1:9999999:1", "1:16777216:x1.000001", "1:9:lin99", "1:9:log99", "1,2,3,4,5"])
def test_fewer_values_may_be_asked_for(text):
    with pytest.raises(ValueError, match=r"^context: an axis has 1 to 4 values, got "):
        axis_from_text("context", text, most=4)


@given(st.text(alphabet="0123456789:.,xlogine-+ ", max_size=30))
def test_any_text_is_an_axis_or_one_line(text):
    try:
        values, message = axis_from_text("context", text), "context: "
    except ValueError as error:
        values, message = [1], str(error)
    assert message.startswith("context: ")
    assert "\n" not in message
    assert values == axis_values("context", values)
