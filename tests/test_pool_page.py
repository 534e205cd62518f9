"""The Pool page, driven without a browser: every kind of plan, its controls, and the longer run beside the server."""

import time

import pytest
from test_pages import opened, plan_of, spec_of, table_with
from test_pool import KINDS

from kvplan import Plan, evaluate, lifecycle, metrics, moments, pool, pool_figures, presets, shapes, verdict
from kvplan.dashboard import jobs
from kvplan.links import short_query
from kvplan.markdown import escape, escape_sentence
from kvplan.traces import read_trace
from kvplan.traffic import of_trace

AT_ONCE, AT_RATE = "all at once", "at the plan's rate"
LONGEST_WAIT_S = 60
ROWS = b"timestamp,prompt_tokens,completion_tokens\n0,100,10\n1,200,20\n3,300,40\n"
OTHER_ROWS = b"timestamp,prompt_tokens,completion_tokens\n0,100,10\n1,200,20\n3,300,50\n4,300,50\n"
SAME_NUMBER = b"timestamp,prompt_tokens,completion_tokens\n0,100,11\n1,200,22\n3,300,444\n"


@pytest.fixture(autouse=True, scope="module")
def worker_that_ends():
    """The process that the pages of these tests share ends with them."""
    yield
    jobs.the_worker().executor.shutdown(cancel_futures=True)
    jobs.the_worker.clear()


def runs_of(plan, at_rate=False):
    report = evaluate(plan)
    arrivals = pool.arrivals_of(report.setting) if at_rate else None
    return report, pool.runs(report, pool.requests_of(report.setting, pool.usual_number(report)), arrivals)


def control(app, key):
    """The choice whose key begins so; None where the page has none."""
    found = [group for group in app.get("button_group") if group.key.startswith(key)]
    return found[0] if found else None


def captions(app):
    return [caption.value for caption in app.caption]


def has_table(app, column):
    return sum(column in table.value for table in app.table)


def finished(app):
    """The page once the work beside the server is over; one that never is fails."""
    until = time.monotonic() + LONGEST_WAIT_S
    while not app.session_state["long_job"][1].is_over:
        assert time.monotonic() < until, "the longer run did not end"
        time.sleep(0.05)
        app.run()
        assert not app.exception
    app.run()
    assert not app.exception
    return app


def long_table(app):
    """The figures of the longer run: the second table of figures on the page."""
    assert has_table(app, "Figure") == 2
    return [table.value for table in app.table if "Figure" in table.value][1]


def figure_of(table, name):
    (row,) = (row for row in table.to_dict("records") if row["Figure"].replace("\\", "") == name)
    return row["Reserve"], row["On demand"]


def assert_page(app, plan, at_rate=False):
    """Verdict, numbers, and every part of the page are those of the plan."""
    report, runs = runs_of(plan, at_rate)
    assert app.header[0].value == escape_sentence(verdict.pool(report, runs).sentence)
    found = metrics.pool(report, runs)
    assert [(metric.label, metric.value) for metric in app.metric] == [(one.label, one.value) for one in found]
    assert all(metric.help for metric in app.metric)
    assert len(app.get("plotly_chart")) == 4
    tensors = table_with(app, "Paged, each layer")
    assert list(tensors["Layers"]) == [escape(row["Layers"]) for row in shapes.shapes(report)]
    assert list(table_with(app, "Figure")["Figure"]) == [escape(name) for name in pool.FIGURES]
    life = lifecycle.lifecycle(report, max_tokens=runs.reserve.outcome.max_tokens)
    assert [words for words in map(escape, verdict.stages(report, life).values()) if words not in captions(app)] == []
    assert escape(verdict.cache_saves(life)) + "." in captions(app)
    moment = next(iter(runs.moments.values()))
    assert escape(verdict.growth(report, moment)) + "." in captions(app)
    assert list(table_with(app, "Held, MiB")["Request"]) == [row["Request"] for row in moments.holders(report, moment)]


# The page of a plan


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_has_a_page(name):
    app = opened({"preset": name}, "pool")
    assert_page(app, plan_of(app))


@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
def test_a_model_of_every_kind_has_a_page(plan):
    assert_page(opened(short_query(plan), "pool"), plan)


def test_the_verdict_names_both_numbers():
    _, runs = runs_of(Plan())
    app = opened({}, "pool")
    numbers = [f"{int(run.outcome.running_before_drain):,}" for run in (runs.on_demand, runs.reserve)]
    assert app.header[0].value.startswith(f"On demand runs **{numbers[0]}** requests at once, reserve ")
    assert f"reserve **{numbers[1]}**; the pool runs out at step " in app.header[0].value
    assert [metric.value for metric in app.metric][:2] == numbers
    steps = [f"{run.outcome.steps:,}" for run in (runs.reserve, runs.on_demand)]
    assert {
        f"**Reserve: {numbers[1]} run, {steps[0]} steps**",
        f"**On demand: {numbers[0]} run, {steps[1]} steps**",
    } <= {markdown.value for markdown in app.markdown}


def test_the_seeded_example_of_the_literature_is_on_the_page():
    app = opened({"workload": "seeded-200", "max_num_seqs": "16"}, "pool")
    table = table_with(app, "Figure")
    assert figure_of(table, "Steps") == ("1,148", "1,148")
    assert figure_of(table, "Slot-steps used") == ("72.3%", "72.3%")


@pytest.mark.parametrize(
    "query",
    [
        {"model": "llama-3.1-70b"},  # no pool
        {"model": "llama-3.1-70b", "tp": "2", "context": "131072"},  # a pool, but not one request
        {"tp": "3"},  # refused by the engine
        {"context": "16777216"},
        {"gpu_memory_gib": "0.1"},
        {"kv_cache_memory_bytes": "0"},
        {"pp": "64", "tp": "64"},
        {"model": "gpt-oss-120b", "tp": "16"},  # refused
        {"mem_fraction_static": "0.1"},  # no pool
        {"tenant_quota_fraction": "0"},
        {"layers": "4096", "kv_heads": "4096", "head_dim": "65536", "kv_dtype": "fp32"},
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_a_plan_that_cannot_run_says_why(query):
    app = opened(query, "pool")
    report = evaluate(Plan(**query))
    assert app.header[0].value == escape_sentence(verdict.ceiling(report).sentence)
    assert [metric.value for metric in app.metric] == [metric.value for metric in metrics.ceiling(report)]
    assert any("With a plan that runs at least one request" in caption for caption in captions(app))
    assert not app.get("plotly_chart")
    assert control(app, "long_run") is None


@pytest.mark.parametrize(
    "query",
    [
        {"context": "1"},  # every prompt is as long as the context
        {"context": "1", "workload": "seeded-200"},  # no prompt, a single token
        {"context": "2"},
        {"workload": "auto", "context": "1024"},  # prompts of 1,024 tokens
        {"kv_cache_memory_bytes": "1000000000000000"},
        {"block_size": "1"},
        {"block_size": "65536", "context": "65536", "kv_cache_memory_bytes": "100000000000"},
        {"batch": "1"},
        {"workload": "auto", "output_dist": "fixed"},
        {"workload": "auto", "output_mean": "16777216", "prompt_mean": "16777216"},
        {"admission": "on_demand", "context": "131072"},
        {"max_num_seqs": "1"},
        {"max_num_seqs": "1048576", "kv_cache_memory_bytes": "1000000000000000"},
        {"max_tokens": "1"},
        {"max_tokens": "16777216"},
        {"shared_prefix_tokens": "1000"},
        {"shared_prefix_tokens": "16777216"},
        {"kv_dtype": "int8_per_token_head", "v_dtype": "int4"},
        {"spec_method": "eagle3", "spec_tokens": "5"},
        {"model": "deepseek-v3", "tp": "16", "dcp": "4"},
        {"groups": "(sliding1024:5x8x128,full:1x8x128)*10", "async_scheduling": "false"},
        {"model": "gemma-3-27b", "gpu": "h200", "disable_hybrid_kv_cache_manager": "true"},
        {"model": "llama-4-scout-17b-16e", "gpu": "mi300x", "context": "1000000", "tp": "4"},
        {"step_s": "3600"},
        {"step_s": "0.000001"},
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_every_state_of_a_plan_is_a_page_without_an_exception(query):
    app = opened(query, "pool")
    assert plan_of(app) == Plan(**query)
    report = evaluate(Plan(**query))
    assert report.engine.fits
    assert len(app.get("plotly_chart")) == 4


def test_what_is_cut_is_said_between_the_pictures():
    """Prompts of 1,155 tokens on average at a context of 512."""
    app = opened({"context": "512"}, "pool")
    report, runs = runs_of(Plan(context=512))
    assert runs.reserve.outcome.rejected > 0 < runs.reserve.outcome.truncated
    assert any(escape(verdict.cut(report, runs)) in words.value for words in app.markdown)
    assert not any("are cut at" in words.value for words in opened({"context": "131072"}, "pool").markdown)


def test_moving_a_widget_moves_the_runs():
    app = opened({}, "pool")
    app.select_slider(key="context").set_value(65536).run()
    assert not app.exception
    assert_page(app, Plan(context=65536))


def test_the_longest_answer_is_set_in_the_sidebar():
    app = opened({"max_tokens": "100"}, "pool")
    assert any("reserve books the prompt and 100 tokens of each" in text.value for text in app.markdown)


def test_the_charts_are_those_of_the_runs():
    app = opened({"workload": "seeded-200", "max_num_seqs": "16"}, "pool")
    _, runs = runs_of(Plan(workload="seeded-200", max_num_seqs=16))
    last = pool_figures.last_step(runs)
    for index in range(3):
        assert spec_of(app, index)["layout"]["xaxis"]["range"] == [0, last]
    notes = [note["text"] for note in spec_of(app, 2)["layout"]["annotations"]]
    assert ["on demand" in note for note in notes] == [True, False]
    assert ["reserve" in note for note in notes] == [False, True]
    assert len(spec_of(app, 3)["data"]) == 3


# Its controls


def test_how_requests_come_can_be_chosen_where_the_plan_has_a_rate():
    query = {"workload": "auto", "arrival_rate": "5", "arrival_cv": "1.5"}
    app = opened(query, "pool")
    assert control(app, "pool_arrivals").options == [AT_ONCE, AT_RATE]
    assert_page(app, Plan(**query))
    control(app, "pool_arrivals").set_value(AT_RATE).run()
    assert not app.exception
    assert_page(app, Plan(**query), at_rate=True)
    assert any("at 5 requests/s" in text.value for text in app.markdown)
    control(app, "pool_arrivals").set_value(AT_ONCE).run()
    assert_page(app, Plan(**query))


@pytest.mark.parametrize(
    "query",
    [
        {"arrival_rate": "0.001"},
        {"arrival_rate": "16777216"},
        {"arrival_rate": "1e-10"},  # one request in three centuries
        {"arrival_cv": "0"},
        {"arrival_cv": "16777216"},
        {"arrival_cv": "1e-170"},
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_any_rate_a_plan_may_have_is_a_page_without_an_exception(query):
    app = opened(query, "pool")
    choice = control(app, "pool_arrivals")
    if choice is not None:
        choice.set_value(AT_RATE).run()
        assert not app.exception


@pytest.mark.parametrize("query", [{"workload": "auto"}, {"workload": "auto", "arrival_rate": "0"}])
def test_without_a_rate_they_come_at_once(query):
    app = opened(query, "pool")
    assert control(app, "pool_arrivals") is None
    assert_page(app, Plan(**query))


def test_a_rate_that_goes_away_takes_its_choice_with_it():
    app = opened({"workload": "auto", "arrival_rate": "5"}, "pool")
    control(app, "pool_arrivals").set_value(AT_RATE).run()
    app.number_input(key="arrival_rate").set_value(0).run()
    assert not app.exception
    assert control(app, "pool_arrivals") is None
    assert_page(app, plan_of(app))


def test_each_moment_has_its_requests():
    app = opened({}, "pool")
    report, runs = runs_of(Plan())
    assert control(app, "moment").options == list(runs.moments) == [moments.FILLS, moments.RUNS_OUT]
    for name, moment in runs.moments.items():
        control(app, "moment").set_value(name).run()
        assert not app.exception
        table = table_with(app, "Held, MiB")
        rows = moments.holders(report, moment)
        assert list(table["Held, MiB"]) == [row["Held, MiB"] for row in rows]
        assert list(table["Generated"]) == [row["Generated"] for row in rows]
        assert escape(verdict.growth(report, moment)) + "." in captions(app)


def test_the_moments_follow_the_plan():
    app = opened({}, "pool")
    control(app, "moment").set_value(moments.RUNS_OUT).run()
    app.number_input(key="max_num_seqs").set_value(16).run()
    assert not app.exception
    assert control(app, "moment").options == [moments.FILLS, moments.PEAK]
    assert_page(app, plan_of(app))


# The longer run


def test_a_longer_run_is_none_until_it_is_chosen():
    app = opened({}, "pool")
    assert control(app, "long_run").options == ["none", "100,000", "1,000,000"]
    assert has_table(app, "Figure") == 1
    assert app.session_state["long_job"][1] is None


def test_a_longer_run_ends_with_its_figures():
    app = opened({"max_num_seqs": "256"}, "pool")
    control(app, "long_run").set_value("100,000").run()
    assert not app.exception
    table = long_table(finished(app))
    plan = Plan(max_num_seqs=256)
    wanted = {row["Figure"]: row for row in pool.results(pool.runs_of_plan(plan, 100_000))}
    assert figure_of(table, "Completed") == ("100,000", "100,000")
    for name in ("Steps", "Preemptions", "Output tokens/s"):
        assert figure_of(table, name) == (wanted[name]["Reserve"], wanted[name]["On demand"])
    # It stays while nothing of it changes.
    job = app.session_state["long_job"][1]
    app.run()
    assert app.session_state["long_job"][1] is job
    assert long_table(app).equals(table)
    control(app, "long_run").set_value("none").run()
    assert has_table(app, "Figure") == 1


def test_a_plan_of_more_steps_than_a_page_waits_for_says_so_and_offers_a_longer_run(monkeypatch):
    monkeypatch.setattr(pool, "MOST_REPORTS", 1)
    app = opened({"workload": "auto", "output_mean": "4000", "max_num_seqs": "1"}, "pool")
    assert app.header[0].value == escape_sentence(verdict.ceiling(app.session_state["report"]).sentence)
    assert any("more steps than a page waits for" in caption for caption in captions(app))
    assert not app.get("plotly_chart")
    assert control(app, "long_run").options == ["none", "100,000", "1,000,000"]


def test_a_longer_run_comes_at_the_rate_that_is_chosen():
    plan = {"workload": "auto", "arrival_rate": "500", "output_dist": "fixed", "output_mean": "20", "step_s": "0.02"}
    app = opened(plan, "pool")
    control(app, "pool_arrivals").set_value(AT_RATE).run()
    control(app, "long_run").set_value("100,000").run()
    reserve, on_demand = figure_of(long_table(finished(app)), "λ, requests completed/s")
    assert float(reserve) == pytest.approx(500, rel=0.02)
    assert float(on_demand) == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("change", ["plan", "arrivals", "number", "none"])
def test_a_changed_input_cancels_it(change):
    app = opened({}, "pool")
    control(app, "long_run").set_value("1,000,000").run()
    assert not app.exception
    (_, job) = app.session_state["long_job"]
    assert not job.is_over
    if change == "plan":
        app.select_slider(key="context").set_value(65536).run()
    elif change == "arrivals":
        control(app, "pool_arrivals").set_value(AT_RATE).run()
    elif change == "number":
        control(app, "long_run").set_value("100,000").run()
    else:
        control(app, "long_run").set_value("none").run()
    assert not app.exception
    (_, other) = app.session_state["long_job"]
    assert other is not job
    assert (other is None) == (change == "none")
    until = time.monotonic() + LONGEST_WAIT_S
    while not job.is_over:
        assert time.monotonic() < until, "the former run was not stopped"
        time.sleep(0.02)
    assert job.future.cancelled() or str(job.future.exception()) == "the run was stopped"
    if other is not None:
        other.cancel()


def test_how_far_it_is_is_shown_meanwhile():
    app = opened({}, "pool")
    control(app, "long_run").set_value("1,000,000").run()
    (_, job) = app.session_state["long_job"]
    assert [part.proto.text for part in app.get("progress")] in (["Waiting for the worker"], ["Running"])
    assert has_table(app, "Figure") == 1
    until = time.monotonic() + LONGEST_WAIT_S
    while not job.share_done:
        assert time.monotonic() < until
        time.sleep(0.02)
    app.run()
    assert [part.proto.text for part in app.get("progress")] == ["Running"]
    job.cancel()


def test_a_run_whose_process_was_killed_is_one_error_and_can_be_chosen_again():
    app = opened({"max_num_seqs": "256"}, "pool")
    control(app, "long_run").set_value("1,000,000").run()
    worker = jobs.the_worker()
    (_, job) = app.session_state["long_job"]
    until = time.monotonic() + LONGEST_WAIT_S
    while not job.share_done:
        assert time.monotonic() < until
        time.sleep(0.02)
    (process,) = worker.executor._processes.values()
    process.kill()
    finished(app)
    assert [error.value for error in app.error] == [escape(jobs.BROKEN)]
    worker.executor.shutdown(cancel_futures=True)
    control(app, "long_run").set_value("none").run()
    control(app, "long_run").set_value("100,000").run()
    assert figure_of(long_table(finished(app)), "Completed") == ("100,000", "100,000")
    assert not app.error


def with_trace(content, query=None):
    """The page once a trace has been read in the sidebar."""
    app = opened(query or {}, "pool")
    app.file_uploader(key="trace_file").set_value(("mine.csv", content, "text/csv")).run()
    assert not app.exception
    return app


def test_a_trace_that_was_read_can_be_run_as_it_came():
    app = with_trace(ROWS)
    assert control(app, "long_run").options == ["none", "100,000", "1,000,000", "the trace, 3"]
    control(app, "long_run").set_value("the trace, 3").run()
    table = long_table(finished(app))
    wanted = {row["Figure"]: row for row in pool.results(pool.runs_of_plan(Plan(), of_trace(read_trace(ROWS))))}
    for name in ("Steps", "Completed", "Output tokens/s", "Requests running, most"):
        assert figure_of(table, name) == (wanted[name]["Reserve"], wanted[name]["On demand"])
    assert figure_of(table, "Steps") == ("70", "70")


def test_another_trace_of_as_many_requests_is_another_run():
    app = with_trace(ROWS)
    control(app, "long_run").set_value("the trace, 3").run()
    assert figure_of(long_table(finished(app)), "Steps") == ("70", "70")
    app.file_uploader(key="trace_file").set_value(("other.csv", SAME_NUMBER, "text/csv")).run()
    assert not app.exception
    assert figure_of(long_table(finished(app)), "Steps") == ("477", "477")


def test_another_trace_of_another_number_takes_the_former_choice_away():
    app = with_trace(ROWS)
    control(app, "long_run").set_value("the trace, 3").run()
    finished(app)
    app.file_uploader(key="trace_file").set_value(("other.csv", OTHER_ROWS, "text/csv")).run()
    assert not app.exception
    assert control(app, "long_run").options[-1] == "the trace, 4"
    assert control(app, "long_run").value in ("none", "the trace, 4")
    control(app, "long_run").set_value("the trace, 4").run()
    assert figure_of(long_table(finished(app)), "Completed") == ("4", "4")
