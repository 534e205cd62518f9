"""The closed form of a fleet and its frontier: what follows from a rate, for any plan."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, evaluate, fleet, frontier, presets
from kvplan.catalog import load_preset, resolve
from kvplan.throughput import at_rate, engine, operate

RATED = {
    "default": Plan(arrival_rate=100),
    "bursty": Plan(workload="azure-code"),
    "on demand": Plan(arrival_rate=100, admission="on_demand"),
    "llama-3.1-70b": Plan(model="llama-3.1-70b", tp=4, arrival_rate=20),
    "deepseek-v3": Plan(model="deepseek-v3", gpu="h200", tp=8, arrival_rate=20),
    "gemma-3-27b": Plan(model="gemma-3-27b", arrival_rate=20),
    "odd split": Plan(model="llama-3.1-70b", tp=16, pp=3, arrival_rate=20),
    "does not fit": Plan(model="llama-3.1-70b"),
    "no target met": Plan(tpot_s=0.001),
    "free": Plan(gpu_hour_usd=0),
}
each_rated = pytest.mark.parametrize("plan", RATED.values(), ids=RATED)


def splits(points):
    return [(point.plan.tp, point.plan.pp) for point in points]


def assert_adds_up(setting, found):
    """GPUs and money follow from the replicas."""
    assert found.spare_replicas == setting.plan.spare_replicas
    assert found.gpus == (found.replicas + found.spare_replicas) * setting.plan.tp * setting.plan.pp
    assert found.usd_per_hour == pytest.approx(found.gpus * setting.gpu_hour_usd)


# What a number of replicas costs


@pytest.mark.parametrize(
    ("spare", "gpus", "usd_per_hour", "usd_per_million"),
    [(0, 6, 15.0, 15 / 3.6), (1, 8, 20.0, 20 / 3.6), (2, 10, 25.0, 25 / 3.6)],
)
def test_a_fleet_by_hand(spare, gpus, usd_per_hour, usd_per_million):
    """3 replicas of 2 GPUs at 2.50 USD an hour; 10 requests/s of 100 tokens are 3.6 million tokens an hour."""
    setting = resolve(Plan(tp=2, gpu_hour_usd=2.5, arrival_rate=10, spare_replicas=spare))
    found = fleet.priced(setting, 3, 100)
    assert (found.replicas, found.spare_replicas, found.gpus) == (3, spare, gpus)
    assert (found.usd_per_hour, found.usd_per_million_tokens) == pytest.approx((usd_per_hour, usd_per_million))


def test_the_peak_is_the_mean_rate_times_what_the_plan_or_the_trace_says():
    assert fleet.peak_rate(resolve(Plan(workload="auto", arrival_rate=8))) == 8
    assert fleet.peak_rate(resolve(Plan(arrival_rate=8, peak_to_mean=2.5))) == 20
    assert fleet.peak_rate(resolve(Plan())) == pytest.approx(5.530136 * 1.5213)


def test_tokens_that_do_not_come_have_no_price():
    assert fleet.usd_per_million_tokens(9.0, 0.0) is None


# The closed form


@each_rated
def test_the_closed_form_is_the_peak_over_what_a_replica_completes(plan):
    report = evaluate(plan)
    batch = report.throughput.meeting_batch
    if not batch:
        assert report.fleet == fleet.NO_FLEET
        return
    each = operate(engine(report.setting), batch).requests_per_s
    peak = fleet.peak_rate(report.setting)
    assert (report.fleet.replicas - 1) * each < peak <= report.fleet.replicas * each
    assert_adds_up(report.setting, report.fleet)


@given(known_plans(workload="azure-conversation"), st.floats(0.01, 1e4), st.floats(1, 100))
def test_more_requests_never_need_fewer_replicas(plan, rate, factor):
    less, more = (
        evaluate(plan.model_copy(update={"arrival_rate": each})).fleet.replicas for each in (rate, rate * factor)
    )
    assert (less is None) == (more is None)
    assert less is None or less <= more


@given(known_plans(arrival_rate=50), st.sampled_from(["ttft_s", "tpot_s"]), st.floats(1, 10))
def test_looser_targets_never_need_more_replicas(plan, name, factor):
    target = getattr(resolve(plan), name)
    looser = plan.model_copy(update={name: min(3600.0, target * factor)})
    tight, loose = evaluate(plan).fleet.replicas, evaluate(looser).fleet.replicas
    assert tight is None or loose <= tight


@given(known_plans())
def test_any_plan_has_a_fleet_or_none_and_what_it_has_adds_up(plan):
    report = evaluate(plan)
    found = report.fleet
    if found.replicas is None:
        assert found == fleet.NO_FLEET
    else:
        assert_adds_up(report.setting, found)


# The frontier


@given(known_plans())
def test_any_plan_has_a_frontier_and_none_without_a_rate(plan):
    points = frontier.frontier(plan)
    if not frontier.has_rate(evaluate(plan)):
        assert points == ()
    for point in points:
        report = evaluate(point.plan)
        assert report.engine.fits
        assert point.plan == plan.model_copy(update={name: getattr(point.plan, name) for name in ("tp", "pp", "dp")})
        assert point.plan.dp == point.fleet.replicas
        assert point.ttft_s >= 0 <= point.tpot_s
        assert_adds_up(report.setting, point.fleet)
        if point.meets:
            assert point.fleet == report.fleet
            assert point.tpot_s <= report.setting.tpot_s * (1 + 1e-9)
    assert len(set(splits(points))) == len(points)


@each_rated
def test_every_split_that_starts_is_there_and_the_plans_own(plan):
    wanted = {(tp, pp) for tp in (1, 2, 4, 8, 16) for pp in (1, 2, 4) if tp * pp <= 16} | {(plan.tp, plan.pp)}
    reports = {(tp, pp): evaluate(plan.model_copy(update={"tp": tp, "pp": pp})) for tp, pp in wanted}
    runs = {split for split, report in reports.items() if report.throughput.batch}
    points = frontier.frontier(plan)
    assert set(splits(points)) == runs
    own = frontier.own(points, plan)
    assert (own is not None) == ((plan.tp, plan.pp) in runs)
    assert own is None or (own.plan.tp, own.plan.pp) == (plan.tp, plan.pp)


@each_rated
def test_the_cheapest_comes_first_and_is_recommended_if_it_meets_both_targets(plan):
    points = frontier.frontier(plan)
    gpus = [point.fleet.gpus for point in points]
    assert gpus == sorted(gpus)
    meeting = [point for point in points if point.meets]
    assert frontier.recommended(points) is (meeting[0] if meeting else None)


@each_rated
@pytest.mark.parametrize("latency", ["tpot_s", "ttft_s"])
def test_the_best_are_those_that_no_other_beats(plan, latency):
    points = frontier.frontier(plan)

    def beaten(point):
        mine = (point.fleet.gpus, getattr(point, latency))
        others = [(other.fleet.gpus, getattr(other, latency)) for other in points]
        return any(other != mine and other[0] <= mine[0] and other[1] <= mine[1] for other in others)

    best = frontier.pareto(points, latency)
    assert {id(point) for point in best} <= {id(point) for point in points if not beaten(point)}
    kept = {(point.fleet.gpus, getattr(point, latency)) for point in best}
    assert all((point.fleet.gpus, getattr(point, latency)) in kept for point in points if not beaten(point))


@each_rated
def test_latency_is_that_of_the_peak_spread_over_the_replicas(plan):
    for point in frontier.frontier(plan):
        report = evaluate(point.plan)
        runs = engine(report.setting)
        each = at_rate(runs, fleet.peak_rate(report.setting) / point.plan.dp, point.batch)
        assert (point.ttft_s, point.tpot_s) == (each.ttft_s, each.tpot_s)


def test_a_split_that_misses_a_target_takes_all_that_fit():
    points = frontier.frontier(RATED["no target met"])
    assert points
    assert not any(point.meets for point in points)
    assert [point.batch for point in points] == [evaluate(point.plan).throughput.batch for point in points]
    assert frontier.recommended(points) is None


def test_a_fleet_that_no_plan_can_hold_is_left_out():
    assert evaluate(Plan(arrival_rate=2**24, peak_to_mean=1000)).fleet.replicas > frontier.MOST_REPLICAS
    assert all(
        point.plan.dp <= frontier.MOST_REPLICAS
        for point in frontier.frontier(Plan(arrival_rate=2**24, peak_to_mean=1000))
    )


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_with_traffic_has_a_frontier(name):
    plan = load_preset(name)
    assert bool(frontier.frontier(plan)) == frontier.has_rate(evaluate(plan))


@pytest.mark.parametrize("plan", [Plan(workload="auto"), Plan(arrival_rate=0), Plan(gpu="h1000"), Plan(tp=3)])
def test_without_a_rate_or_a_replica_there_is_no_fleet(plan):
    assert evaluate(plan).fleet == fleet.NO_FLEET
    assert frontier.own(frontier.frontier(plan), plan) is None


def test_a_model_handed_over_is_that_of_every_split():
    model = load_preset("gemma-3-27b", "model")
    found = frontier.frontier(Plan(arrival_rate=20), model)
    named = frontier.frontier(Plan(model="gemma-3-27b", arrival_rate=20))
    assert [dataclasses.replace(point, plan=Plan()) for point in found] == [
        dataclasses.replace(point, plan=Plan()) for point in named
    ]
