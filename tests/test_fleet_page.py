"""The Fleet page, driven without a browser: the closed form at once, the simulated answer later, and every state."""

import time

import pytest
from test_fleet_search import SHORT, found_of
from test_pages import opened, plan_of, spec_of, table_with

from kvplan import Plan, evaluate, fleet_tables, fleet_words, frontier, metrics, verdict
from kvplan.dashboard import jobs
from kvplan.links import decode_link, short_query
from kvplan.markdown import escape, escape_sentence
from kvplan.palette import POOL_FILL

LONGEST_WAIT_S = 90
OPENED = []


@pytest.fixture(autouse=True, scope="module")
def worker_that_ends():
    """The process that the pages of these tests share ends with them."""
    yield
    jobs.the_worker().executor.shutdown(cancel_futures=True)
    jobs.the_worker.clear()


@pytest.fixture(autouse=True)
def searches_that_end():
    """A search that a test did not wait for does not keep the next one waiting."""
    yield
    for app in OPENED:
        if "fleet_job" in app.session_state:
            job_of(app).cancel()
    OPENED.clear()


def page(plan):
    app = opened(short_query(plan), "fleet")
    OPENED.append(app)
    return app


def job_of(app):
    return app.session_state["fleet_job"][1]


def finished(app):
    """The page once the search beside the server is over; one that never is fails."""
    until = time.monotonic() + LONGEST_WAIT_S
    while not job_of(app).is_over:
        assert time.monotonic() < until, "the search did not end"
        time.sleep(0.05)
    app.run()
    assert not app.exception
    return app


def captions(app):
    return [caption.value for caption in app.caption]


def has_table(app, column):
    return any(column in table.value for table in app.table)


def values(app):
    return [metric.value for metric in app.metric]


def words(found):
    return [metric.value for metric in found]


def assert_closed_form(app, plan):
    """What is there at once: the closed form's verdict and numbers, the frontier's picture and table."""
    report, points = evaluate(plan), frontier.frontier(plan)
    assert app.header[0].value == escape_sentence(fleet_words.verdict(report, points, None).sentence)
    assert values(app) == words(fleet_words.metrics(report, report.fleet, "closed form"))
    assert all(metric.help and metric.help.count("$") < 2 for metric in app.metric)  # two would begin a formula
    assert_frontier(app, plan)


def assert_frontier(app, plan):
    """A dot, and a row with a link that opens the plan, for every split."""
    points = frontier.frontier(plan)
    assert len(app.get("plotly_chart")) == bool(points)
    if not points:
        assert not has_table(app, "Split")
        return
    table = table_with(app, "Split")
    links = [cell.partition("](<")[2].removesuffix(">)") for cell in table["Split"]]
    assert all(link.startswith("./fleet") for link in links)
    assert [decode_link(link)[0] for link in links] == [point.plan for point in points]
    assert list(table["GPUs"]) == [point.fleet.gpus for point in points]


def assert_simulated(app, plan):
    """What is there later: the simulated verdict, numbers, table and words."""
    report, found = evaluate(plan), found_of(plan)
    answer = fleet_words.verdict(report, frontier.frontier(plan), found)
    assert app.header[0].value == escape_sentence(answer.sentence)
    assert values(app) == words(fleet_words.metrics(report, found.fleet, "simulated"))
    table = table_with(app, "TPOT p95, ms")
    rows = fleet_tables.search_rows(found)
    assert list(table["Result"]) == [escape(row["Result"]) for row in rows]
    assert list(table["Replicas"]) == [escape(row["Replicas"]) for row in rows]
    wanted = [fleet_words.why(report, found), fleet_words.searched(found), fleet_words.prices(report)]
    if found.replicas:
        wanted += [fleet_words.headroom(report, found.fleet), fleet_words.owned(plan, found.fleet)]
    assert {escape(line) + "." for line in wanted} <= set(captions(app))
    assert_frontier(app, plan)


# The states of a plan


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        SHORT,
        SHORT.model_copy(update={"spare_replicas": 0, "dp": 3}),
        SHORT.model_copy(update={"spare_replicas": 2, "tp": 2, "gpu_hour_usd": 2.49, "price_date": "2026-11-30"}),
        SHORT.model_copy(update={"gpu_hour_usd": 0}),
        SHORT.model_copy(update={"admission": "on_demand"}),
    ],
    ids=["default", "short", "no spare", "priced", "free", "on demand"],
)
def test_the_closed_form_stands_at_once_and_the_simulated_answer_follows(plan):
    app = page(plan)
    assert plan_of(app) == plan
    if not job_of(app).is_over:
        assert_closed_form(app, plan)
    assert_simulated(finished(app), plan)


def test_until_the_search_is_over_the_numbers_say_whose_they_are(monkeypatch):
    monkeypatch.setattr(jobs.Job, "is_over", property(lambda job: False))
    app = page(SHORT)
    assert_closed_form(app, SHORT)
    assert app.metric[0].proto.delta_description == "closed form, and 1 spare"
    assert "Until then the numbers above are the closed form's." in captions(app)
    assert app.get("progress")
    assert not has_table(app, "TPOT p95, ms")


def test_without_a_rate_the_page_says_which_control_gives_one():
    plan = Plan(workload="auto")
    app = page(plan)
    report = evaluate(plan)
    assert app.header[0].value == escape_sentence(fleet_words.no_rate(report).sentence)
    assert values(app) == words(fleet_words.replica_metrics(report))
    (wanted,) = [caption for caption in captions(app) if "Requests a second" in caption]
    labels = [widget.label for widget in app.number_input]
    assert "Requests a second" in labels
    assert "Lengths" in wanted
    assert not app.get("plotly_chart")
    assert "fleet_job" not in app.session_state


def test_who_comes_when_too_many_wait_is_told_so_and_may_search_again(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(jobs, "MOST_JOBS", 0)
        app = page(SHORT)
        assert [error.value for error in app.error] == [escape(jobs.BUSY)]
        assert app.header[0].value
    app.button(key="fleet_again").click().run()
    assert not app.exception
    assert_simulated(finished(app), SHORT)


def test_giving_a_rate_gives_a_fleet():
    app = page(Plan(workload="auto", output_mean=24))
    app.number_input(key="arrival_rate").set_value(5.0).run()
    assert not app.exception
    assert_simulated(finished(app), Plan(workload="auto", output_mean=24, arrival_rate=5))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(model="llama-3.1-70b"),  # no pool
        Plan(model="llama-3.1-70b", tp=2, context=131072),  # a pool, but not one request
        Plan(tp=3),  # refused
        Plan(tenant_quota_fraction=0),
        Plan(model="llama-3.1-70b", workload="auto"),  # neither
    ],
    ids=["no pool", "no request", "refused", "no quota", "no rate"],
)
def test_a_plan_that_cannot_run_shows_the_splits_that_can(plan):
    app = page(plan)
    report = evaluate(plan)
    assert app.header[0].value == escape_sentence(verdict.ceiling(report).sentence)
    assert values(app) == words(metrics.ceiling(report))
    assert_frontier(app, plan)
    assert "fleet_job" not in app.session_state


def test_a_target_that_no_number_meets_is_said():
    plan = SHORT.model_copy(update={"tpot_s": 0.001})
    app = page(plan)
    assert app.header[0].value.startswith("**No number of replicas**")
    finished(app)
    assert_simulated(app, plan)
    assert app.header[0].value.endswith("whatever the rate")
    assert values(app) == ["none"] * 4
    assert escape("alone: TPOT too long") in list(table_with(app, "TPOT p95, ms")["Result"])


def test_a_search_that_fails_says_why_and_the_closed_form_stands():
    plan = Plan(workload="auto", arrival_rate=1, output_mean=2**24, context=2**24, kv_cache_memory_bytes=2**45)
    app = finished(page(plan))
    assert any("steps" in error.value for error in app.error)
    assert frontier.own(frontier.frontier(plan), plan) is None  # more replicas than a plan can hold
    assert values(app) == ["none"] * 4
    assert any("was not simulated" in markdown.value for markdown in app.markdown)


def test_an_unknown_step_has_no_closed_form_and_is_simulated_with_a_round_one():
    plan = SHORT.model_copy(update={"weights_gib": 0, "tpot_s": None})
    app = finished(page(plan))
    assert_simulated(app, plan)
    assert not app.get("plotly_chart") or frontier.frontier(plan)


# Prices


def test_prices_are_the_users_own_with_their_date():
    app = page(SHORT.model_copy(update={"gpu_hour_usd": 2.49, "price_date": "2026-11-30"}))
    assert app.metric[2].proto.delta_description == "$2.49 a GPU hour, 2026-11-30"
    assert any("2.49 a GPU hour is your own price, as of 2026-11-30" in line for line in captions(app))


def test_without_a_price_it_is_a_unit_and_no_offer():
    app = page(SHORT)
    assert app.metric[2].proto.delta_description == "$1.00 a GPU hour, as a unit"
    assert any("a unit and no offer" in line for line in captions(app))


# Controls


def test_the_choice_of_latency_moves_the_picture_and_the_remarks():
    app = page(SHORT)
    assert spec_of(app)["layout"]["xaxis"]["title"]["text"] == "TPOT at the peak, ms"
    (choice,) = [group for group in app.get("button_group") if group.key == "fleet_latency"]
    choice.set_value("TTFT").run()
    assert not app.exception
    assert spec_of(app)["layout"]["xaxis"]["title"]["text"] == "TTFT at the peak, ms"
    rows = fleet_tables.frontier_rows(evaluate(SHORT), frontier.frontier(SHORT), "ttft_s")
    assert list(table_with(app, "Split")["Remark"]) == [row["Remark"] for row in rows]


def test_the_plans_row_and_no_other_is_tinted():
    app = page(SHORT.model_copy(update={"tp": 2}))
    (table,) = [table for table in app.table if "Split" in table.value]
    place = [cell.startswith("[tp 2]") for cell in table.value["Split"]].index(True)
    styles = table.proto.arrow_data.styler.styles
    assert POOL_FILL in styles
    assert {row for row in range(len(table.value)) if f"row{row}_" in styles} == {place}


def test_another_plan_cancels_the_search_and_begins_its_own():
    app = page(SHORT)
    first = job_of(app)
    app.number_input(key="ttft_s").set_value(3.0).run()
    assert not app.exception
    second = job_of(app)
    assert second is not first
    assert first.worker.cancelled[first.place]
    assert not second.worker.cancelled[second.place]
    assert_simulated(finished(app), SHORT.model_copy(update={"ttft_s": 3.0}))


def test_the_same_plan_is_searched_once():
    app = page(SHORT)
    first = job_of(app)
    app.run()
    assert job_of(app) is first
    (choice,) = [group for group in app.get("button_group") if group.key == "fleet_latency"]
    choice.set_value("TTFT").run()
    assert job_of(app) is first


@pytest.mark.parametrize("plan", [Plan(gpu="h100-sxm", groups="full:4x8x128,sliding64:2x8x128", arrival_rate=5)])
def test_a_link_with_brackets_opens_its_split(plan):
    assert_frontier(page(plan), plan)
