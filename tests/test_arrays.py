"""One formula for a number and for arrays of them: each operation gives both the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.arrays import ceil, choose, every, floor, maximum, minimum, position, rounded

WHOLE = st.integers(-(2**52), 2**52)
REAL = st.floats(-(2**52), 2**52)
NUMBERS = st.one_of(st.lists(WHOLE, min_size=1, max_size=9), st.lists(REAL, min_size=1, max_size=9))


def same(array, numbers):
    """An array holds these numbers, of their type."""
    return array.tolist() == numbers and {type(value) for value in array.tolist()} == {type(value) for value in numbers}


@pytest.mark.parametrize("operation", [floor, ceil, rounded])
@given(numbers=st.lists(REAL, min_size=1, max_size=9))
def test_whole_numbers_are_the_same_of_one_and_of_many(operation, numbers):
    assert same(operation(np.array(numbers)), [operation(number) for number in numbers])


@given(halves=st.lists(st.integers(-1000, 1000).map(lambda whole: whole + 0.5), min_size=1, max_size=9))
def test_halves_go_to_the_even_number_in_both(halves):
    assert same(rounded(np.array(halves)), [round(half) for half in halves])
    assert all(rounded(half) % 2 == 0 for half in halves)


@pytest.mark.parametrize("operation", [minimum, maximum])
@given(numbers=NUMBERS, other=st.one_of(WHOLE, REAL))
def test_the_smaller_and_the_larger_are_the_same_of_one_and_of_many(operation, numbers, other):
    found = operation(np.array(numbers), other)
    assert found.tolist() == [operation(number, other) for number in numbers]
    assert operation(other, np.array(numbers)).tolist() == found.tolist()


@given(numbers=st.lists(WHOLE, min_size=1, max_size=9), bound=WHOLE)
def test_a_choice_is_the_same_of_one_and_of_many(numbers, bound):
    array = np.array(numbers)
    assert same(choose(array > bound, array, 0), [choose(number > bound, number, 0) for number in numbers])


@given(bounds=st.lists(WHOLE, max_size=9).map(sorted), numbers=st.lists(WHOLE, min_size=1, max_size=9))
def test_a_position_is_the_same_of_one_and_of_many(bounds, numbers):
    found = position(bounds, np.array(numbers)).tolist()
    assert found == [position(bounds, number) for number in numbers]
    assert found == [sum(bound <= number for bound in bounds) for number in numbers]


def test_integers_of_any_size_stay_exact_alone():
    assert (minimum(2**80, 2**81), maximum(2**80, 1), choose(True, 2**80, 0)) == (2**80, 2**80, 2**80)


def test_a_condition_holds_everywhere_or_not():
    assert every(True)
    assert every(np.array([True, True]))
    assert not every(np.array([True, False]))
    assert not every(False)
