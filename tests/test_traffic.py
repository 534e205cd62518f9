"""Requests as a simulation takes them: order, cuts, drawn arrivals, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan
from kvplan.simulate import simulate
from kvplan.traces import read_trace
from kvplan.traffic import MOST_TOKENS, arrival_times, of_trace, traffic

rows_of_any_kind = st.lists(
    st.tuples(st.integers(-50, 50), st.integers(0, 130), st.integers(1, 150)), min_size=1, max_size=30
)

# Order and cuts


@given(rows_of_any_kind, st.integers(1, 120), st.none() | st.integers(1, 100))
def test_requests_are_cut_to_what_an_engine_admits(rows, context, max_tokens):
    """Definition, request by request: min(context, prompt + max_tokens), nothing for a prompt of the whole context."""
    found = traffic(rows, context=context, max_tokens=max_tokens)
    most = max(output for _, _, output in rows) if max_tokens is None else max_tokens
    served = sorted(
        (place for place, row in enumerate(rows) if row[1] < context), key=lambda place: (rows[place][0], place)
    )
    assert found.places.tolist() == served
    assert found.arrivals_s.tolist() == [rows[place][0] for place in served]
    assert found.prompts.tolist() == [rows[place][1] for place in served]
    assert found.declared.tolist() == [min(context, rows[place][1] + most) for place in served]
    cut = [min(rows[place][2], most, context - rows[place][1]) for place in served]
    assert found.outputs.tolist() == cut
    assert (found.outputs >= 1).all()
    assert (found.prompts + found.outputs <= found.declared).all()
    assert found.rejected == len(rows) - len(served)
    assert found.truncated == sum(less < rows[place][2] for less, place in zip(cut, served, strict=True))
    assert (found.max_tokens, found.hashes) == (most, None)


def test_lists_tuples_and_arrays_are_alike():
    rows = [(0.5, 10, 3), (0.25, 200, 1), (0.0, 20, 2)]
    found = [
        traffic(given, context=100)
        for given in (rows, tuple(map(list, rows)), np.array(rows), [np.array(row) for row in rows])
    ]
    for each in found:
        assert each.places.tolist() == [2, 0]
        assert each.prompts.tolist() == [20, 10]
        assert each.prompts.dtype == each.outputs.dtype == each.declared.dtype == np.int64


def test_prefix_blocks_stay_with_their_requests():
    rows = [(3, 600, 1, (1, 2)), (1, 5000, 1, (3,)), (2, 700, 1, (4, 5)), (2, 10, 1, ())]
    found = traffic(rows, context=1000)
    assert found.places.tolist() == [2, 3, 0]
    assert found.hashes == [(4, 5), (), (1, 2)]


def test_results_are_in_the_order_given_whatever_the_order_of_arrival():
    """Closed form: one slot, one step a second, served by arrival."""
    rows = [(20, 1, 4), (0, 1, 2), (10, 1, 3), (0, 1, 1)]
    found = simulate(rows, Plan(max_num_seqs=1), step_time=1)
    assert found.places.tolist() == [0, 1, 2, 3]
    assert found.e2e_s.tolist() == [4, 2, 3, 3]
    assert found.ttft_s.tolist() == [1, 1, 1, 3]
    assert found.completed_steps.tolist() == [10, 2, 6, 3]


@given(rows_of_any_kind, st.randoms())
def test_a_shuffled_input_is_the_same_traffic(rows, random):
    """Definition: those of different moments are served by arrival."""
    rows = [(number, prompt, output) for number, (_, prompt, output) in enumerate(rows)]
    shuffled = random.sample(rows, len(rows))
    plan = Plan(context=120, max_num_seqs=2)
    ordered, mixed = (simulate(given, plan, step_time=2) for given in (rows, shuffled))
    back = [rows.index(shuffled[place]) for place in mixed.places.tolist()]
    assert sorted(zip(back, mixed.e2e_s.tolist(), strict=True)) == list(
        zip(ordered.places.tolist(), ordered.e2e_s.tolist(), strict=True)
    )


# Traces


def test_a_trace_is_what_it_holds():
    lines = '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    lines += '{"timestamp": 3052, "input_length": 7322, "output_length": 490, "hash_ids": [0, 3]}\n'
    rows = of_trace(read_trace(lines.encode(), "a.jsonl"))
    assert rows == [(0, 6758, 500, (0, 1, 2)), (3.052, 7322, 490, (0, 3))]
    assert simulate(rows, Plan(context=8192)).completed == 2


def test_a_trace_without_times_comes_at_once():
    rows = of_trace(read_trace(b"input_tokens,output_tokens\n100,20\n200,30\n", "a.csv"))
    assert rows == [(0, 100, 20), (0, 200, 30)]


# Drawn arrivals


@pytest.mark.parametrize("rate", [0.01, 5.0, 2000.0])
@pytest.mark.parametrize(
    ("process", "cv"),
    [
        pytest.param(("poisson",), 1, id="poisson"),
        pytest.param(("gamma", 0.0), 0, id="regular"),
        pytest.param(("gamma", 0.3), 0.3, id="gamma 0.3"),
        pytest.param(("gamma", 1.0), 1, id="gamma 1"),
        pytest.param(("gamma", 2.5), 2.5, id="gamma 2.5"),
    ],
)
def test_gaps_have_their_rate_and_their_variation(process, cv, rate):
    """Monte Carlo: mean and standard deviation of 200,000 gaps; of gamma gaps k = 1/cv², θ = cv²/rate."""
    name, *rest = process
    times = arrival_times((name, rate, *rest), 200_000, seed=3)
    gaps = np.diff(times, prepend=0)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1 / rate, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.04, abs=1e-6)


def test_regular_gaps_to_the_digit():
    """Closed form: the first comes after one gap."""
    assert arrival_times(("gamma", 4.0, 0.0), 4, seed=9).tolist() == [0.25, 0.5, 0.75, 1.0]
    assert arrival_times(["poisson", 4.0], 0, seed=9).tolist() == []


@pytest.mark.parametrize("cv", [1e-9, 1e-170, 1e-200])
def test_gaps_that_vary_less_than_numbers_can_tell_are_regular(cv):
    """Closed form: gaps of a variation towards 0 are equal."""
    assert arrival_times(("gamma", 2.0, cv), 3, seed=0) == pytest.approx([0.5, 1.0, 1.5], rel=1e-6)


def test_requests_may_come_from_anything_that_gives_them_one_by_one():
    rows = [(0, 100, 5), (1, 200, 6)]
    given = [
        traffic(rows, context=1000),
        traffic((row for row in rows), context=1000),
        traffic(np.array(rows), context=1000),
    ]
    assert [found.prompts.tolist() for found in given] == [[100, 200]] * 3


@pytest.mark.parametrize("arrivals", [("poisson", 3.0), ("gamma", 3.0, 2.0)])
def test_a_seed_is_a_run(arrivals):
    rows = [(0, 100, 5 + number % 40) for number in range(300)]
    runs = [simulate(rows, Plan(max_num_seqs=4), step_time=0.02, arrivals=arrivals, seed=seed) for seed in (1, 1, 2)]
    assert runs[0].e2e_s.tolist() == runs[1].e2e_s.tolist()
    assert runs[0].makespan_s == runs[1].makespan_s
    assert runs[0].e2e_s.tolist() != runs[2].e2e_s.tolist()
    found = traffic(rows, context=1000, arrivals=arrivals, seed=1)
    assert found.arrivals_s.tolist() == arrival_times(arrivals, 300, 1).tolist()


def test_drawn_arrivals_are_in_the_order_given_and_replace_those_given():
    """Definition: one a request, the rejected included."""
    rows = [(9, 10, 1), (5, 5000, 1), (7, 20, 1)]
    found = traffic(rows, context=100, arrivals=("gamma", 1.0, 0.0))
    assert (found.places.tolist(), found.arrivals_s.tolist()) == ([0, 2], [1, 3])


def test_arrivals_that_are_given_are_kept():
    rows = [(0.125, 10, 1), (7.5, 10, 1)]
    assert traffic(rows, context=100, arrivals=None).arrivals_s.tolist() == [0.125, 7.5]
    assert simulate(rows, Plan(), step_time=1).makespan_s == 8.375


RATE = "arrivals: rate must be at least 1e-09 requests/s, got "
PROCESS = r"arrivals: must be \('poisson', rate\) or \('gamma', rate, cv\), got "


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        pytest.param("poisson", PROCESS + "'poisson'", id="text"),
        pytest.param(("poisson",), PROCESS + r"\('poisson',\)", id="no rate"),
        pytest.param(("poisson", 1, 2), PROCESS + r"\('poisson', 1, 2\)", id="a variation too many"),
        pytest.param(("gamma", 1), PROCESS + r"\('gamma', 1\)", id="no variation"),
        pytest.param(("uniform", 1), PROCESS + r"\('uniform', 1\)", id="unknown"),
        pytest.param((), PROCESS + r"\(\)", id="empty"),
        pytest.param(5, PROCESS + "5", id="a number"),
        pytest.param((["poisson"], 1), PROCESS, id="a list for a name"),
        pytest.param(("poisson", 0), RATE + "0", id="rate of 0"),
        pytest.param(("poisson", -2.5), RATE + "-2.5", id="negative rate"),
        pytest.param(("poisson", math.nan), RATE + "nan", id="rate of nan"),
        pytest.param(("poisson", math.inf), RATE + "inf", id="endless rate"),
        pytest.param(("gamma", 0, 1), RATE + "0", id="gamma at a rate of 0"),
        pytest.param(
            ("gamma", 1, -0.5), "arrivals: cv must be from 0 to 16,777,216, got -0.5", id="negative variation"
        ),
        pytest.param(
            ("gamma", 1, math.nan), "arrivals: cv must be from 0 to 16,777,216, got nan", id="variation of nan"
        ),
        pytest.param(
            ("gamma", 1, math.inf), "arrivals: cv must be from 0 to 16,777,216, got inf", id="endless variation"
        ),
        pytest.param(("gamma", 1, 1e200), "arrivals: cv must be", id="a variation whose square is no number"),
        pytest.param(("poisson", "2"), "arrivals: rate must be", id="text for a rate"),
        pytest.param(("poisson", None), "arrivals: rate must be", id="None for a rate"),
        pytest.param(("gamma", 1, "2"), "arrivals: cv must be", id="text for a variation"),
    ],
)
def test_a_process_that_is_none_is_refused_in_a_line(arrivals, message):
    with pytest.raises(ValueError, match=message) as error:
        simulate([(0, 10, 5)], Plan(), arrivals=arrivals)
    assert "\n" not in str(error.value)


# Refusals


PARTS = r"each must be \(arrival_s, prompt, output\[, hashes\]\), got "
SECONDS = "arrival_s must be a finite number of seconds, got "
PROMPT = "prompt must be a whole number from 0 to 1,099,511,627,776, got "
OUTPUT = "output must be a whole number from 1 to 1,099,511,627,776, got "


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([(0, 1)], PARTS + r"\[2\] parts", id="two parts"),
        pytest.param([(0, 1, 2, (), 5)], PARTS + r"\[5\] parts", id="five parts"),
        pytest.param([(0, 1, 2), (0, 1, 2, ())], PARTS + r"\[3, 4\] parts", id="unlike parts"),
        pytest.param([7], "each must be", id="a number for a request"),
        pytest.param([(0, 1, 1), (math.nan, 1, 1)], SECONDS + "nan in request 2", id="arrival nan"),
        pytest.param([(math.inf, 1, 1)], SECONDS + "inf in request 1", id="arrival never"),
        pytest.param([("now", 1, 1)], r"arrival_s must be numbers, got \['now'\]", id="arrival text"),
        pytest.param([(0, 1, 1), (0, 2, 2), (0, -1, 1)], PROMPT + "-1 in request 3", id="prompt -1"),
        pytest.param([(0, 1.5, 1)], PROMPT + "1.5 in request 1", id="prompt 1.5"),
        pytest.param([(0, math.nan, 1)], PROMPT + "nan in request 1", id="prompt nan"),
        pytest.param([(0, math.inf, 1)], PROMPT + "inf in request 1", id="prompt without end"),
        pytest.param([(0, "many", 1)], r"prompt must be numbers, got \['many'\]", id="prompt text"),
        pytest.param([(0, MOST_TOKENS + 1, 1)], "prompt must be .*got .* in request 1", id="a trillion tokens"),
        pytest.param([(0, 10**400, 1)], "prompt must be", id="a number of 401 digits"),
        pytest.param([(0, [1, 2], 1)], "prompt must be", id="a list for a prompt"),
        pytest.param([(0, [5], 1)], "prompt must be", id="a list of one for a prompt"),
        pytest.param([(0, 1, 0)], OUTPUT + "0 in request 1", id="output 0"),
        pytest.param([(0, 1, -3)], OUTPUT + "-3 in request 1", id="output -3"),
        pytest.param([(0, 1, 2.25)], OUTPUT + "2.25 in request 1", id="output 2.25"),
        pytest.param([(0, 1, None)], "output must be", id="None for an output"),
        pytest.param([(0, 600, 1, None)], "hashes must be", id="None for hashes"),
        pytest.param([(0, 600, 1, 5)], "hashes must be", id="a number for hashes"),
        pytest.param([(0, 600, 1, [[5]])], "hashes must be", id="a list for a hash"),
        pytest.param(np.zeros((4, 2)), r"an array must have 3 columns, got shape \(4, 2\)", id="array of two columns"),
        pytest.param(np.zeros(3), r"an array must have 3 columns, got shape \(3,\)", id="array of one row"),
        pytest.param(np.array([[0, 1, 1], [0, 1.5, 1]]), PROMPT + "1.5 in request 2", id="array with half a token"),
    ],
)
def test_requests_that_are_none_are_refused_in_a_line(rows, message):
    with pytest.raises(ValueError, match=f"^requests: {message}") as error:
        simulate(rows, Plan())
    assert "\n" not in str(error.value)


def test_a_seed_that_is_none_is_refused_in_a_line():
    with pytest.raises(ValueError, match=r"^seed: .*-1"):
        simulate([(0, 10, 5)], Plan(), arrivals=("poisson", 1.0), seed=-1)
