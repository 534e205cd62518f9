"""`kvplan simulate`: both policies as text and as JSON, requests out of a trace, and one clear line on bad input."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import known_plans
from test_cli import HEAVY, ROOT, assert_one_line, called, kvplan, output, printed

from kvplan import Plan, cli, encode_link, evaluate, pool, verdict

SEEDED = ("--set", "workload=seeded-200", "--set", "max_num_seqs=16")
CSV = "timestamp,prompt_tokens,completion_tokens\n0,100,10\n1,200,20\n3,300,40\n"
MOONCAKE = [
    {"timestamp": 0, "input_length": 1600, "output_length": 10, "hash_ids": [1, 2, 3, 4]},
    {"timestamp": 100, "input_length": 1700, "output_length": 20, "hash_ids": [1, 2, 3, 5]},
    {"timestamp": 9000, "input_length": 1600, "output_length": 30, "hash_ids": [1, 2, 6, 7]},
]
"""Prompts whose first pieces of 512 tokens are the same: three of the second, two of the third."""


@pytest.fixture
def csv_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(CSV)
    return str(path)


@pytest.fixture
def mooncake_file(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in MOONCAKE))
    return str(path)


def simulated(*arguments):
    """What `simulate --json` says, and what it has to say of the file it read."""
    run = called("simulate", "--json", *arguments)
    assert run.returncode == 0
    assert all(line.startswith("kvplan: ") for line in run.stderr.splitlines())
    return json.loads(run.stdout)


def figures(text):
    """The table of the text: figure -> its two columns."""
    rows = [line for line in text.splitlines() if line.startswith("  ")]
    return {row[:46].strip(): (row[46:72].strip(), row[72:].strip()) for row in rows}


# What works


def test_the_seeded_example_of_the_literature():
    """200 requests on 16 slots: 1,148 steps, 72.3% of the slots."""
    text = printed("simulate", *SEEDED)
    assert text.startswith("On demand runs 16 requests at once, reserve 16; the pool never runs out\n")
    rows = figures(text)
    assert rows["Steps"] == ("1,148", "1,148")
    assert rows["Slot-steps used"] == ("72.3%", "72.3%")
    assert rows["Completed"] == ("200", "200")
    found = simulated(*SEEDED)
    for policy in ("reserve", "on_demand"):
        assert (found[policy]["steps"], f"{found[policy]['busy']:.1%}") == (1148, "72.3%")


def test_the_text_is_the_verdict_and_every_figure_of_both_runs():
    report = evaluate(Plan())
    runs = pool.runs(report, pool.requests_of(report.setting, 500))
    text = printed("simulate", "--requests", "500")
    answer = verdict.pool(report, runs)
    assert text.splitlines()[:2] == [verdict.plain(answer.sentence), verdict.plain(answer.reason)]
    assert "**" not in text
    rows = figures(text)
    for row in pool.results(runs):
        assert rows[row["Figure"]] == (row["Reserve"], row["On demand"])


def test_json_is_the_run_of_python():
    report = evaluate(Plan())
    runs = pool.runs(report, pool.requests_of(report.setting, 500))
    assert simulated("--requests", "500") == json.loads(json.dumps(pool.to_dict(Plan(), runs)))


def test_without_a_number_there_are_enough_for_a_steady_state():
    assert simulated()["requests"] == pool.usual_number(evaluate(Plan())) > 5000
    assert simulated(*SEEDED)["requests"] == 200
    assert simulated(*SEEDED, "--requests", "7")["requests"] == 7
    assert simulated(*SEEDED, "--requests", "201")["requests"] == 201


def test_a_process_prints_what_a_call_prints():
    for arguments in (["simulate", *SEEDED], ["simulate", "--json", "--requests", "300"]):
        assert output(*arguments) == printed(*arguments)


def test_the_same_command_gives_the_same_run():
    arguments = ("simulate", "--json", "--arrivals", "rate", "--requests", "700")
    assert printed(*arguments) == printed(*arguments)


def test_requests_come_at_the_plans_rate():
    found = simulated("--arrivals", "rate", "--requests", "2000", "--set", "arrival_rate=5", "--set", "arrival_cv=1")
    assert found["on_demand"]["rate"] == pytest.approx(5, rel=0.1)
    text = printed("simulate", "--arrivals", "rate", "--requests", "2000", "--set", "arrival_rate=5")
    assert "2,000 requests, at 5 requests/s, on " in text
    at_once = simulated("--arrivals", "once", "--requests", "2000")
    assert at_once == simulated("--requests", "2000")


def test_what_preemption_costs_is_chosen():
    small = ("--requests", "400", "--set", "kv_cache_memory_bytes=2000000000")
    again, moved = simulated(*small), simulated(*small, "--preemption", "swap")
    assert (again["on_demand"]["preemption"], moved["on_demand"]["preemption"]) == ("recompute", "swap")
    assert again["on_demand"]["wasted_tokens"] > 0 == again["on_demand"]["swapped_tokens"]
    assert moved["on_demand"]["swapped_tokens"] > 0 == moved["on_demand"]["wasted_tokens"]


def test_a_preset_a_link_and_fields_make_the_plan():
    found = simulated("--preset", "seeded-200-16-slots", "--set", "max_num_seqs=16")
    assert (found["requests"], found["reserve"]["steps"], found["reserve"]["slots"]) == (200, 1148, 16)
    linked = simulated("--link", "?workload=seeded-200&tp=2", "--set", "max_num_seqs=16")
    assert Plan(**linked["plan"]) == Plan(workload="seeded-200", tp=2, max_num_seqs=16)


@settings(max_examples=25)
@given(known_plans(kv_cache_memory_bytes=st.sampled_from([2**36, 2**45])))
def test_any_plan_gives_a_run_or_one_line(plan):
    run = called("simulate", "--json", "--requests", "20", "--link", encode_link(plan))
    report = evaluate(plan)
    if report.engine.fits and report.capacity.batch_ceiling:
        assert run.returncode == 0
        assert json.loads(run.stdout)["requests"] == 20
    else:
        assert_one_line(run)


# Traces


def test_a_trace_runs_as_it_came(csv_file):
    """The last of three requests comes after 3 s and takes 40 steps of 20 ms."""
    found = simulated("--trace", csv_file, "--set", "step_s=0.02")
    assert found["requests"] == 3
    for policy in ("reserve", "on_demand"):
        run = found[policy]
        assert (run["completed"], run["prompt_tokens"], run["output_tokens"]) == (3, 600, 70)
        assert run["makespan_s"] == pytest.approx(3.8)
        assert run["peak_running"] == 1
    text = called("simulate", "--trace", csv_file).stdout
    assert "3 requests, at their own times, on " in text


def test_a_trace_may_come_all_at_once_or_at_its_mean_rate(csv_file):
    once = simulated("--trace", csv_file, "--arrivals", "once", "--set", "step_s=0.02")
    assert once["on_demand"]["peak_running"] == 3
    assert once["on_demand"]["makespan_s"] == pytest.approx(0.8)
    text = called("simulate", "--trace", csv_file, "--arrivals", "once").stdout
    assert "3 requests, all at once, on " in text
    text = called("simulate", "--trace", csv_file, "--arrivals", "rate").stdout
    assert "3 requests, at 0.667 requests/s, on " in text


def test_the_first_of_a_trace_are_taken(csv_file):
    found = simulated("--trace", csv_file, "--requests", "2")
    assert (found["requests"], found["on_demand"]["output_tokens"]) == (2, 30)
    run = called("simulate", "--trace", str(csv_file), "--requests", "9")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1] == "kvplan: --requests: the trace has 3, got 9"


def test_a_trace_without_times_comes_all_at_once(tmp_path):
    path = tmp_path / "no-times.csv"
    path.write_text("prompt,output\n100,10\n200,20\n")
    assert simulated("--trace", str(path))["on_demand"]["peak_running"] == 2
    run = called("simulate", "--trace", str(path), "--arrivals", "rate")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("kvplan: --arrivals: the plan has no arrival_rate")


def test_the_prefixes_a_trace_names_are_found_in_the_pool(mooncake_file):
    """The second finds three pieces of 512 tokens, the third two."""
    found = simulated("--trace", mooncake_file)
    for policy in ("reserve", "on_demand"):
        run = found[policy]
        assert run["prefix_hit_tokens"] == (3 + 2) * 512
        assert run["prefill_tokens"] == 1600 + 1700 + 1600 - 5 * 512
        assert run["notes"] == []
    assert figures(called("simulate", "--trace", mooncake_file).stdout)["Prompt tokens found in the pool"] == (
        "2,560",
        "2,560",
    )


def test_prefixes_are_kept_when_all_come_at_once(mooncake_file):
    found = simulated("--trace", mooncake_file, "--arrivals", "once")
    assert found["on_demand"]["prefix_hit_tokens"] == (3 + 2) * 512
    assert found["on_demand"]["peak_running"] == 3


def test_what_is_ignored_of_a_trace_is_noted(mooncake_file):
    run = called("simulate", "--trace", mooncake_file, "--set", "enable_prefix_caching=false")
    assert run.stdout.splitlines()[-1] == "note: hashes: ignored, as the plan does not cache prefixes"
    found = simulated("--trace", mooncake_file, "--set", "shared_prefix_tokens=100")
    assert found["reserve"]["notes"] == ["shared_prefix_tokens: ignored, the requests name their own prefixes"]


def test_how_the_file_was_read_goes_to_standard_error(mooncake_file, csv_file):
    run = called("simulate", "--trace", mooncake_file)
    assert run.stderr.splitlines()[0] == "kvplan: mooncake.jsonl: 3 requests, Mooncake"
    assert "mine.csv: 3 requests, CSV" in called("simulate", "--trace", csv_file).stderr


# What does not


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--requests", "0"], "--requests: must be a whole number from 1 to 100,000,000, got '0'"),
        (["--requests", "-1"], "--requests"),
        (["--requests", "x"], "got 'x'"),
        (["--requests", ""], "got ''"),
        (["--requests", "1.5"], "got '1.5'"),
        (["--requests", "1e6"], "got '1e6'"),
        (["--requests", "100000001"], "got '100000001'"),
        (["--requests", "9" * 5000], "--requests: must be a whole number"),
        (["--requests", "٣"], "--requests: must be a whole number"),
        (["--requests", "1\n2"], "--requests: must be a whole number"),
        (["--arrivals", "rate", "--set", "workload=auto"], "--arrivals: the plan has no arrival_rate"),
        (["--arrivals", "rate", "--set", "arrival_rate=0"], "--arrivals: the plan has no arrival_rate"),
        (["--arrivals", "twice"], "'twice'"),
        (["--preemption", "never"], "'never'"),
        (["--set", "model=llama-3.1-70b"], "plan: one request of 8,192 tokens needs 2.5 GiB, the pool has 0 B"),
        (["--set", "model=no-such-thing"], "no preset named 'no-such-thing'"),
        (["--set", "tp=3"], "must be divisible by tp, got 3"),
        (["--set", "tenant_quota_fraction=0"], "tenant_quota_fraction"),
        (["--set", "kv_cache_memory_bytes=0"], "the pool has 0 B"),
        (["--set", "colour=red"], "colour: "),
        (["--trace", "no-such-file.csv"], "cannot be read"),
        (["--column", "prompt=when"], "--column: names a column of --trace, and none is given"),
    ],
    ids=lambda value: " ".join(value)[:40].replace("\n", "\\n") if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, named):
    run = called("simulate", *arguments)
    assert_one_line(run)
    assert named in run.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--requests", "0"],
        ["--requests", "x"],
        ["--requests", "999999999999"],
        ["--arrivals", "rate", "--set", "workload=auto"],
        ["--json", "--set", "model=llama-3.1-70b"],
        ["--set", "model=no-such-thing"],
    ],
)
def test_a_process_given_bad_input_ends_with_one_line_and_exit_code_2(arguments):
    assert_one_line(kvplan("simulate", *arguments))


@pytest.mark.parametrize(
    "fields",
    [
        ["arrival_rate=0.001"],
        ["arrival_rate=16777216"],
        ["arrival_cv=0"],
        ["arrival_cv=16777216"],
        ["arrival_cv=1e-170"],
        ["arrival_rate=1e-320"],
    ],
)
def test_any_rate_and_any_variation_a_plan_may_have_give_a_run_or_one_line(fields):
    arguments = [word for field in fields for word in ("--set", field)]
    run = kvplan("simulate", "--json", "--arrivals", "rate", "--requests", "50", *arguments)
    if run.returncode:
        assert_one_line(run)
    else:
        assert run.stderr == ""
        assert json.loads(run.stdout)["requests"] == 50


# What it needs


def test_the_headless_path_imports_neither_streamlit_nor_plotly_nor_pandas(csv_file):
    program = f"""
import contextlib, io, sys
from kvplan.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    codes = [main(["simulate", "--requests", "50"]), main(["simulate", "--json", "--trace", {csv_file!r}])]
print(codes, *sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    codes, _, modules = run.stdout.partition("] ")
    assert codes == "[0, 0"
    assert not {name.split(".")[0] for name in modules.split()} & HEAVY


def test_nothing_but_the_answer_is_printed_where_nobody_watches():
    run = kvplan("simulate", "--requests", "50000", "--set", "max_num_seqs=64")
    assert (run.returncode, run.stderr) == (0, "")
    assert "50,000 requests" in run.stdout


def test_on_a_terminal_it_says_how_far_it_is(monkeypatch):
    class Terminal(list):
        def write(self, text):
            self.append(text)

        def flush(self):
            pass

        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["simulate", "--requests", "50000", "--set", "max_num_seqs=64"]) == 0
    told = "".join(terminal)
    assert told.startswith("\r   0%")
    assert told.endswith("\r 100%\n")
    assert "\r  50%" in told
