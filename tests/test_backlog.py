"""A backlog through a plan's batch: the example of the literature to the digit, and what holds for any plan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans, whole

from kvplan import Plan, curves, evaluate, verdict
from kvplan.backlog import MOST_REQUESTS, backlog, steps_shown
from kvplan.figures import slots_figure
from kvplan.palette import DARK, LIGHT

SEEDED = evaluate(Plan(workload="seeded-200", batch=16, step_s=0.02))


def test_the_seeded_example_to_the_digit():
    """200 requests on 16 slots; at 20 ms a step 115.9 s and 1.7 requests/s against 23.0 s and 8.7, 5.05 times."""
    found = backlog(SEEDED)
    assert (found.lengths.size, found.slots, int(found.lengths.sum())) == (200, 16, 13_280)
    assert (found.static.steps, found.continuous.steps) == (5797, 1148)
    assert (f"{found.static.busy:.1%}", f"{found.continuous.busy:.1%}") == ("14.3%", "72.3%")
    assert f"{found.gain:.2f}" == "5.05"
    walls = [found.wall_s(run) for run in (found.static, found.continuous)]
    assert [f"{wall:.1f}" for wall in walls] == ["115.9", "23.0"]
    assert [f"{found.requests_per_s(run):.1f}" for run in (found.static, found.continuous)] == ["1.7", "8.7"]
    assert verdict.backlog(found).startswith(
        "200 requests on 16 slots, the same order in both. At 20 ms a step: 115.9 s and 1.7 requests/s against 23.0 s "
        "and 8.7 requests/s, 5.05 times"
    )


def test_equal_lengths_tie():
    found = backlog(SEEDED, equal=True)
    assert found.static == found.continuous
    assert (found.gain, set(found.lengths)) == (1.0, {66})


def test_two_hundred_equal_requests_of_100_tokens_take_1300_steps_either_way():
    found = backlog(evaluate(Plan(workload="auto", output_dist="fixed", output_mean=100, batch=16)))
    assert found.lengths.size == 200
    assert (found.static.steps, found.continuous.steps, found.gain) == (1300, 1300, 1.0)


def test_the_step_is_the_plans_own():
    slow = backlog(evaluate(Plan(workload="seeded-200", batch=16, step_s=0.05)))
    assert slow.wall_s(slow.continuous) == pytest.approx(1148 * 0.05)
    assert slow.gain == backlog(SEEDED).gain


@given(known_plans(batch=st.none() | whole((1, 16, 64), 1, 600)))
def test_a_backlog_of_any_plan(plan):
    report = evaluate(plan)
    found = backlog(report)
    assert found.slots == report.batching.batch
    assert 1 <= found.lengths.size <= MOST_REQUESTS
    assert 1 <= found.continuous.steps <= found.static.steps
    assert found.lengths.max() <= found.continuous.steps <= steps_shown(found) <= 1.3 * found.continuous.steps + 1
    assert found.lengths.size == pytest.approx(found.requests_per_s(found.static) * found.wall_s(found.static))


def test_the_same_plan_has_the_same_backlog():
    one, other = (backlog(evaluate(Plan(batch=64))) for _ in range(2))
    assert np.array_equal(one.lengths, other.lengths)


# The picture


def bars(figure):
    return [trace for trace in figure.data if trace.type == "bar"]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_the_picture_shows_every_request_of_the_continuous_run(palette):
    found = backlog(SEEDED)
    figure = slots_figure(found, "continuous", steps_shown(found), palette)
    waiting, working = bars(figure)
    assert len(waiting.x) == 0
    assert sum(working.x) == found.lengths.sum()
    assert any("all done at 1,148" in note.text for note in figure.layout.annotations)


def test_the_static_picture_is_cut_where_the_continuous_one_ends():
    found = backlog(SEEDED)
    figure = slots_figure(found, "static", steps_shown(found))
    waiting, working = bars(figure)
    assert max(base + length for base, length in zip(working.base, working.x, strict=True)) <= 1250
    assert sum(waiting.x) + sum(working.x) == 16 * 1250
    assert any("to 5,797" in note.text for note in figure.layout.annotations)
    assert figure.layout.xaxis.range == (0, 1250)


def test_of_many_slots_the_first_are_shown():
    found = backlog(evaluate(Plan(batch=500)))
    for policy in ("static", "continuous"):
        rows = {row for trace in bars(slots_figure(found, policy, steps_shown(found))) for row in trace.y}
        assert rows == set(range(1, 33))
    assert "500 slots, of which 32 are shown" in verdict.backlog(found)


# Where the exponential model misleads


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"workload": "auto"}, "1/H_B is within 2% of these lengths at every batch"),
        ({"batch": 64}, "Exponential lengths would use 21% at batch 64, 37% too low; it misleads most at batch 512: "),
        (
            {"workload": "seeded-200", "batch": 16},
            "would use 30% at batch 16, 88% too high; it misleads most at ",
        ),
    ],
)
def test_the_miss_of_the_exponential_model_is_named(fields, said):
    report = evaluate(Plan(**fields))
    curve = curves.utilisation(report)
    assert said in verdict.exponential_miss(report, curve.batches, curve.static, curve.exponential)


def test_a_backlog_that_fits_into_one_batch_says_that_nothing_waits():
    crowded = verdict.backlog(backlog(evaluate(Plan(workload="seeded-200", batch=256))))
    assert crowded == "200 requests on 256 slots: all run at once, so both take as long as the longest"
    assert "12 requests on 1 slot, " in verdict.backlog(backlog(evaluate(Plan(batch=1))))
