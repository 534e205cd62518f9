"""The fewest replicas in the simulator: by hand, against runs of one's own, and as laws."""

import dataclasses
import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate, fleet, fleet_search, fleet_tables, frontier, lengths, load_preset
from kvplan.fleet_search import FRESH_SEEDS, SEEDS, search, smallest
from kvplan.simulate import percentiles, simulate
from kvplan.texts import spec_text

HAND = Plan(
    workload="auto", output_dist="fixed", prompt_mean=100, output_mean=10, step_s=0.1, max_num_seqs=4, arrival_cv=0,
    tpot_s=0.1, gpu_hour_usd=2.5,
)  # fmt: skip
"""Four slots, each taken for ten steps of 0.1 s: a replica completes 4 requests/s at most."""
SHORT = Plan(workload="auto", prompt_mean=800, output_mean=24, arrival_rate=40, tpot_s=0.02)
"""Outputs so short that a search takes little time, with the estimated step and lengths that differ."""
SOUGHT = {
    "by hand": HAND.model_copy(update={"arrival_rate": 4.4}),
    "default": Plan(),
    "fast": Plan(arrival_rate=100),
    "short": SHORT,
    "on demand": SHORT.model_copy(update={"admission": "on_demand", "kv_cache_memory_bytes": 2**32}),
    "first token": SHORT.model_copy(update={"ttft_s": 0.1, "tpot_s": None}),
    "bursty": SHORT.model_copy(update={"arrival_cv": 8}),
    "many": SHORT.model_copy(update={"arrival_rate": 2000}),
}
each_sought = pytest.mark.parametrize("plan", SOUGHT.values(), ids=SOUGHT)
KNOWN = {}


def found_of(plan):
    """The answer, searched once for all tests."""
    if plan not in KNOWN:
        KNOWN[plan] = search(plan)
    return KNOWN[plan]


def hand(rate, **fields):
    return HAND.model_copy(update={"arrival_rate": rate} | fields)


def short(**fields):
    return SHORT.model_copy(update=fields)


def own_run(plan, replicas, number, seed):
    """One of so many replicas, run without the search; 95th percentiles of the later half."""
    setting = evaluate(plan).setting
    prompts, outputs = lengths.draw(setting.lengths, number, seed)
    cv = fleet_search.split_cv(setting.arrival_cv, replicas)
    rate = fleet.peak_rate(setting) / replicas
    rows = np.column_stack([np.zeros(number, dtype=int), prompts, outputs])
    run = simulate(rows, plan, arrivals=("gamma", rate, cv), seed=seed + 1)
    late = run.places >= number // 2
    return percentiles(run.ttft_s[late], [0.95])[0], percentiles(run.tpot_s[late], [0.95])[0]


# By hand


@pytest.mark.parametrize(("rate", "replicas"), [(0.5, 1), (3.0, 1), (3.9, 1), (4.4, 2), (6.0, 2)])
def test_a_fleet_by_hand(rate, replicas):
    """Requests that come every 1/rate s and hold one of 4 slots for a second: above 4 a second they pile up."""
    found = found_of(hand(rate))
    assert found.saturated_rate == pytest.approx(4, rel=0.01)
    assert found.replicas == replicas
    assert found.fleet.gpus == replicas + 1
    assert found.fleet.usd_per_hour == pytest.approx(2.5 * (replicas + 1))
    assert found.fleet.usd_per_million_tokens == pytest.approx(2.5 * (replicas + 1) / (rate * 10 * 3600) * 1e6)


def test_times_by_hand():
    """An arrival waits for the step that is under way, at most 0.1 s, and has its first token after the next."""
    (trial,) = [trial for trial in found_of(hand(3.0)).trials if trial.replicas == 1]
    assert trial.missed == ()
    assert trial.cv == 0
    assert all(0.1 <= value <= 0.2 + 1e-6 for value in trial.ttft_s)
    assert trial.tpot_s == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize(("spare", "gpus"), [(0, 4), (1, 6), (2, 8)])
def test_spare_replicas_come_on_top_and_change_nothing_else(spare, gpus):
    plan = hand(4.4, spare_replicas=spare, tp=2)
    found = found_of(plan)
    assert (found.replicas, found.fleet.gpus, found.fleet.spare_replicas) == (2, gpus, spare)
    assert found.fleet.usd_per_hour == pytest.approx(2.5 * gpus)
    assert found.trials == found_of(hand(4.4, tp=2)).trials


def test_the_peak_counts_and_not_the_mean():
    assert found_of(hand(3.0)).replicas == 1
    found = found_of(hand(3.0, peak_to_mean=3))
    assert (found.replicas, found.peak_rate) == (found_of(hand(9.0)).replicas, 9)
    assert found.fleet.usd_per_million_tokens == pytest.approx(2.5 * (found.replicas + 1) / (3 * 10 * 3600) * 1e6)


def test_a_queue_that_only_grows_does_not_pass_however_loose_the_targets():
    """4.02 a second on 4: an hour's target is far, but the queue has no end."""
    found = found_of(hand(4.02, ttft_s=3600))
    (one,) = (trial for trial in found.trials if trial.replicas == 1)
    assert one.missed == ("rate",)
    assert found.replicas == 2


# The answer


@each_sought
def test_one_fewer_fails_and_so_many_pass_also_with_other_seeds(plan):
    found = found_of(plan)
    tried = {trial.replicas: trial for trial in found.trials}
    assert tried[found.replicas].missed == ()
    others = [trial for trial in (*found.trials, *found.verified) if trial.replicas == found.replicas - 1]
    assert found.replicas == 1 or any(trial.missed for trial in others)
    assert (found.verified[-1].replicas, found.verified[-1].missed) == (found.replicas, ())
    assert all(trial.missed for trial in found.verified[:-1])


@each_sought
def test_no_seed_is_used_for_two_verdicts(plan):
    found = found_of(plan)
    assert all(trial.seeds == tuple(range(len(trial.seeds))) for trial in found.trials)
    seeds = [*range(SEEDS), *(seed for trial in found.verified for seed in trial.seeds)]
    assert len(set(seeds)) == len(seeds)
    alone = [found.alone] if found.alone else []
    assert found.simulations == 1 + sum(len(trial.seeds) for trial in (*found.trials, *found.verified, *alone))


@each_sought
def test_what_passes_passes_with_every_seed_and_the_first_miss_is_the_last_run(plan):
    found = found_of(plan)
    for trials, number in ((found.trials, SEEDS), (found.verified, FRESH_SEEDS)):
        for trial in trials:
            assert len(trial.seeds) == len(trial.ttft_s) == len(trial.tpot_s)
            assert len(trial.seeds) == number if not trial.missed else 1 <= len(trial.seeds) <= number


@each_sought
def test_a_trial_misses_what_its_percentiles_say(plan):
    setting = evaluate(plan).setting
    found = found_of(plan)
    for trial in (*found.trials, *found.verified):
        late = {name: getattr(trial, name)[-1] > getattr(setting, name) * (1 + 1e-6) for name in ("ttft_s", "tpot_s")}
        assert trial.missed == tuple(
            name for name, fails in (late | {"rate": trial.rate > found.saturated_rate}).items() if fails
        )
        assert trial.rate == pytest.approx(fleet.peak_rate(setting) / trial.replicas)
        assert trial.judged >= 1500


@pytest.mark.parametrize("name", ["by hand", "default", "fast", "first token", "on demand"])
def test_a_run_of_ones_own_with_another_seed_says_the_same(name):
    plan = SOUGHT[name]
    setting = evaluate(plan).setting
    found = found_of(plan)
    ttft_s, tpot_s = own_run(plan, found.replicas, 8000, seed=4711)
    assert ttft_s <= setting.ttft_s
    assert tpot_s <= setting.tpot_s * (1 + 1e-6)
    half = found.replicas // 2
    if half:
        ttft_s, tpot_s = own_run(plan, half, 8000, seed=4711)
        assert ttft_s > setting.ttft_s or tpot_s > setting.tpot_s


def test_without_an_estimate_of_the_step_the_search_begins_with_one_replica():
    plan = hand(4.4, step_s=None, weights_gib=0)
    found = found_of(plan)
    assert (found.closed_form, found.trials[0].replicas) == (None, 1)
    assert found.replicas == 1
    assert max(found.verified[0].tpot_s) == pytest.approx(0.02)


@each_sought
def test_the_search_begins_with_the_closed_form(plan):
    found = found_of(plan)
    assert found.closed_form == frontier.point_of(evaluate(plan))
    assert found.trials[0].replicas == evaluate(plan).fleet.replicas


def test_the_same_plan_has_the_same_answer():
    assert search(SOUGHT["fast"]) == found_of(SOUGHT["fast"])


def test_the_answer_can_be_sent_to_another_process():
    found = found_of(Plan())
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_model_handed_over_is_the_one_that_runs():
    model = load_preset("gemma-3-27b", "model")
    found, packed = search(SHORT, model), search(short(spec=spec_text(model)))
    assert found.trials == packed.trials
    assert found.replicas == packed.replicas


# Laws


def test_more_requests_never_need_fewer_replicas():
    replicas = [found_of(short(arrival_rate=rate)).replicas for rate in (1, 20, 40, 100, 2000)]
    assert replicas == sorted(replicas)
    assert replicas[0] < replicas[-1]


@pytest.mark.parametrize(("name", "targets"), [("tpot_s", (0.01, 0.02, 0.2)), ("ttft_s", (0.06, 0.1, 2.0))])
def test_looser_targets_never_need_more_replicas(name, targets):
    replicas = [found_of(short(**{"tpot_s": None, name: target})).replicas for target in targets]
    assert replicas == sorted(replicas, reverse=True)
    assert replicas[0] > replicas[-1]


def test_bursts_need_more_replicas():
    replicas = [found_of(short(arrival_cv=cv)).replicas for cv in (0.0, 1.0, 8.0)]
    assert replicas == sorted(replicas)
    assert replicas[-1] > replicas[0]


@given(st.floats(0, 100), st.integers(1, 10**6))
def test_a_random_split_is_nearer_to_exponential_gaps_and_never_beyond(cv, replicas):
    split = fleet_search.split_cv(cv, replicas)
    assert split == pytest.approx(cv) if replicas == 1 else min(cv, 1) <= split <= max(cv, 1)
    assert fleet_search.split_cv(cv, 10 * replicas) == pytest.approx(1, abs=abs(split - 1) + 1e-9)


def test_gaps_that_nobody_knows_are_exponential():
    assert fleet_search.split_cv(None, 1) == fleet_search.split_cv(None, 7) == 1


# How numbers are tried


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 3))
def test_the_smallest_that_passes_is_found_from_any_guess_in_few_tries(threshold, guess, failing):
    failing = min(failing, threshold - 1, guess - 1)
    tried = []

    def passes(number):
        assert number > failing
        tried.append(number)
        return number >= threshold

    assert smallest(passes, guess, lambda number: True, failing) == threshold
    distance = abs(threshold - guess)
    assert len(set(tried)) <= 4 + 2 * math.log2(1 + distance)


def test_the_search_gives_up_where_it_is_told_that_nothing_above_passes():
    asked = []
    assert smallest(lambda number: False, 3, lambda number: asked.append(number) or number < 7) is None
    assert asked == [4, 6, 10]


def failing_afterwards(monkeypatch, first_seeds):
    """Trials whose first seed is one of these fail, whatever they are."""
    true = fleet_search._trial

    def trial(bench, replicas, seeds):
        found = true(bench, replicas, seeds)
        return dataclasses.replace(found, missed=("tpot_s",)) if seeds[0] in first_seeds else found

    monkeypatch.setattr(fleet_search, "_trial", trial)


def test_what_fails_with_other_seeds_is_followed_by_one_more(monkeypatch):
    failing_afterwards(monkeypatch, {SEEDS, SEEDS + FRESH_SEEDS})
    found = search(hand(4.4))
    assert found_of(hand(4.4)).replicas == 2
    assert [(trial.replicas, trial.missed) for trial in found.verified] == [(2, ("tpot_s",)), (3, ("tpot_s",)), (4, ())]
    assert found.replicas == 4
    assert {2, 3, 4} <= {trial.replicas for trial in found.trials if not trial.missed}


def test_targets_that_are_met_by_chance_end_the_search(monkeypatch):
    failing_afterwards(monkeypatch, range(SEEDS, 10**6))
    monkeypatch.setattr(fleet_search, "MOST_VERIFIED", 2)
    with pytest.raises(ValueError, match=r"^ttft_s, tpot_s: met by chance, up to 3 replicas failed [^\n]*$"):
        search(hand(4.4))


# What cannot be


def test_no_number_of_replicas_betters_a_request_alone():
    found = found_of(short(tpot_s=0.001))
    assert (found.replicas, found.fleet, found.verified) == (None, fleet.NO_FLEET, ())
    assert found.alone.missed == ("tpot_s",)
    assert len(found.trials) == fleet_search.PATIENCE
    assert all("tpot_s" in trial.missed for trial in found.trials)


def test_a_request_alone_is_as_fast_as_one_that_is_simulated_by_itself():
    plan = Plan(workload="auto", output_dist="fixed", prompt_mean=500, output_mean=5, arrival_rate=1, ttft_s=1e-6)
    alone = found_of(plan).alone
    run = simulate([(0, 500, 5)], plan)
    assert alone.ttft_s == pytest.approx((run.ttft_s[0],), rel=1e-6)
    assert alone.tpot_s == pytest.approx((run.tpot_s[0],), rel=1e-6)
    assert alone.missed == ("ttft_s",)


def test_outputs_of_one_token_have_no_time_between_tokens():
    found = found_of(hand(4.4, output_mean=1, tpot_s=1e-6))
    assert found.replicas == 1
    assert set(found.verified[-1].tpot_s) == {None}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(workload="auto"), r"arrival_rate: a fleet needs requests a second above 0"),
        (Plan(arrival_rate=0), r"arrival_rate: a fleet needs"),
        (Plan(model="llama-3.1-70b"), r"plan: one request of 8,192 tokens needs"),
        (Plan(tp=3), r"(?=.*3)"),
        (Plan(gpu="h1000"), r"gpu: no preset named 'h1000'"),
        (Plan(tenant_quota_fraction=0), r"tenant_quota_fraction: is less than one sequence"),
        (Plan(context=1), r"context: not one request runs, as each prompt has 1 tokens or more"),
        (
            Plan(workload="auto", arrival_rate=1, output_mean=2**24, context=2**24, kv_cache_memory_bytes=2**45),
            r"output_mean: a run would take [\d,]+ steps, more than 50,000,000 are not simulated",
        ),
    ],
    ids=lambda value: "" if isinstance(value, Plan) else value[:30],
)
def test_what_cannot_be_searched_is_one_line(plan, message):
    with pytest.raises(ValueError, match=rf"^{message}") as error:
        search(plan)
    assert "\n" not in str(error.value)


def test_more_replicas_than_a_plan_can_hold_are_no_answer(monkeypatch):
    monkeypatch.setattr(fleet_search, "MOST_REPLICAS", 3)
    with pytest.raises(ValueError, match=r"^arrival_rate: the peak needs more than 3 replicas$"):
        search(hand(100))


# How far it is


def test_progress_only_grows_and_ends_at_the_whole():
    seen = []
    found = search(hand(4.4), progress=lambda done, total: seen.append(done / total))
    assert found == found_of(hand(4.4))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 1)
    assert len(seen) >= found.simulations


@pytest.mark.parametrize("calls", [1, 5])
def test_the_search_stops_when_it_is_told(calls):
    numbers = itertools.count(1)
    with pytest.raises(ValueError, match=r"^the search was stopped$"):
        search(hand(4.4), progress=lambda done, total: next(numbers) < calls)
    assert next(numbers) <= calls + 2


# As data and as text


@pytest.mark.parametrize(
    "plan", [Plan(), SOUGHT["bursty"], short(tpot_s=0.001), hand(4.4, output_mean=1, tpot_s=1e-6)], ids=str
)
def test_the_answer_is_plain_json_with_null_for_what_is_undefined(plan):
    found = found_of(plan)
    data = json.loads(json.dumps(fleet_search.to_dict(plan, found), allow_nan=False))
    assert data["schema"] == "kvplan.fleet/1"
    assert data["plan"] == plan.model_dump(mode="json")
    assert data["fleet"]["replicas"] == found.replicas
    assert data["rate"]["peak"] == found.peak_rate
    assert [trial["replicas"] for trial in data["search"]["trials"]] == [trial.replicas for trial in found.trials]
    assert (data["search"]["alone"] is None) == (found.alone is None)
    assert [(point["tp"], point["pp"], point["dp"]) for point in data["frontier"]] == [
        (point.plan.tp, point.plan.pp, point.plan.dp) for point in frontier.frontier(plan)
    ]


@pytest.mark.parametrize("plan", [*SOUGHT.values(), short(tpot_s=0.001)], ids=[*SOUGHT, "impossible"])
def test_the_text_has_the_verdict_every_number_tried_and_every_split(plan):
    found, points = found_of(plan), frontier.frontier(plan)
    lines = fleet_tables.text(evaluate(plan), points, found).splitlines()
    number = {None: "No number of replicas", 1: "1 replica"}.get(found.replicas, f"{found.replicas} replicas")
    assert lines[0].startswith(number)
    for row in fleet_tables.search_rows(found):
        assert any(line.split()[:2] == [row["Replicas"], row["Each, requests/s"]] for line in lines)
    assert sum("/fleet" in line for line in lines) == len(points)
    assert all(line.endswith(".") for line in lines if line.startswith("note: "))
    assert any("closed form" in line for line in lines)
