"""The command line: the same numbers as Python, one clear line on bad input, and a fast start."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from strategies import known_plans

from kvplan import (
    Plan,
    accuracy_document,
    cli,
    decode_link,
    encode_link,
    evaluate,
    fleet_search,
    levers,
    levers_words,
    load_preset,
    presets,
    rate_document,
)
from kvplan.plan_json import to_json
from kvplan.texts import table_from_text
from kvplan.version import VERSION

ROOT = Path(__file__).parents[1]
READY = "llama-70b-chat-4xh100"
HEAVY = {"streamlit", "plotly", "pandas"}


def kvplan(*arguments, cwd=ROOT):
    """One command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "kvplan", *arguments], cwd=cwd, capture_output=True, text=True)


def called(*arguments):
    """One command without a new process, which takes as long as a hundred commands."""
    with contextlib.redirect_stdout(io.StringIO()) as stdout, contextlib.redirect_stderr(io.StringIO()) as stderr:
        try:
            code = cli.main(arguments)
        except SystemExit as stop:
            code = stop.code
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def printed(*arguments):
    """What a command that works prints; it has nothing to complain about."""
    run = called(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def output(*arguments):
    """The same from a process of its own."""
    run = kvplan(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def as_json(plan):
    return json.loads(json.dumps(evaluate(plan).to_dict()))


def assert_one_line(run):
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("kvplan: ")
    assert run.stderr.count("\n") == 1
    assert len(run.stderr.splitlines()) == 1
    assert len(run.stderr) < 1000


# What works


def test_the_version_is_that_of_the_package():
    assert output("--version") == f"kvplan {VERSION}\n"


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        ([], Plan()),
        (["--preset", READY], load_preset(READY)),
        (
            ["--preset", READY, "--set", "context=32768", "--set", "tp=8"],
            load_preset(READY).model_copy(update={"tp": 8}),
        ),
        (["--set", "model=qwen3-8b", "--set", "gpu=l4"], Plan(model="qwen3-8b", gpu="l4")),
        (["--set", "kv_dtype=bfloat16", "--set", "layers = 16"], Plan(kv_dtype="bf16", layers=16)),
        (["--preset", "llama-8b-chat-l4", "--set", "weight_dtype=auto"], Plan(gpu="l4", kv_dtype="fp8")),
        (["--link", "https://example.org/paging?tp=4&kv_dtype=fp8"], Plan(tp=4, kv_dtype="fp8")),
        (["--link", f"?preset={READY}&tp=2", "--set", "tp=8"], load_preset(READY).model_copy(update={"tp": 8})),
        (["--set", "kv_cache_memory_bytes=0"], Plan(kv_cache_memory_bytes=0)),
        (["--set", "tp=7"], Plan(tp=7)),
    ],
)
def test_json_is_the_report_of_python(arguments, plan):
    assert json.loads(printed("report", "--json", *arguments)) == as_json(plan)


def test_a_process_prints_what_a_call_prints():
    for arguments in (["report", "--json", "--preset", READY, "--set", "tp=8"], ["link"], ["presets"]):
        assert output(*arguments) == printed(*arguments)


@given(known_plans())
def test_json_is_the_report_of_python_for_any_plan(plan):
    assert json.loads(printed("report", "--json", "--link", encode_link(plan))) == as_json(plan)


@given(known_plans())
def test_any_plan_has_a_report_in_text(plan):
    report = evaluate(plan)
    text = printed("report", "--link", encode_link(plan))
    ceiling = next(line for line in text.splitlines() if "batch ceiling" in line)
    assert f"{report.capacity.batch_ceiling:,}" in ceiling.split()
    assert [line for line in text.splitlines() if line.startswith("note: ")] == [
        f"note: {note}" for note in report.notes
    ]


def test_the_text_opens_with_the_answer_and_ends_with_the_sources():
    text = printed("report", "--preset", READY)
    ceiling = evaluate(load_preset(READY)).capacity.batch_ceiling
    assert text.startswith(f"{ceiling} sequences of 32,768 tokens fit on 4 × H100 SXM\n")
    assert "**" not in text
    assert text.splitlines()[-1].startswith("source: ")
    assert any(line.startswith("source: activation_bytes: ") and "(estimate)" in line for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        ([], Plan()),
        (["--preset", READY, "--set", "tp=8"], load_preset(READY).model_copy(update={"tp": 8})),
        (["--set", "model=meta-llama/Llama-3.1-70B-Instruct"], Plan(model="meta-llama/Llama-3.1-70B-Instruct")),
    ],
)
def test_the_link_opens_the_same_plan(arguments, plan):
    link = printed("link", *arguments).removesuffix("\n")
    assert link == encode_link(plan)
    assert decode_link(link) == (plan, [])


def test_a_link_may_be_short_and_may_have_a_base():
    assert (
        printed("link", "--short", "--base", "https://example.org/", "--set", "tp=4") == "https://example.org/?tp=4\n"
    )
    assert printed("link", "--base", "https://example.org/").startswith("https://example.org/?v=1&")


def test_a_reported_link_is_the_link_that_was_given():
    link = printed("link", "--preset", READY).strip()
    assert printed("link", "--link", link).strip() == link


def test_presets_lists_every_id_under_its_kind():
    words = [line.split()[0] for line in printed("presets").splitlines()]
    kinds = ("model", "gpu", "workload", "plan")
    assert words == [word for kind in kinds for word in (f"{kind}s", *presets(kind))]


@pytest.fixture
def trace_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("when;tokens in;tokens out\n0;100;10\n1;200;20\n3;300;x\n3;400;40\n")
    return str(path)


MAPPING = ("--column", "prompt=tokens in", "--column", "output=tokens out", "--column", "arrival=when")


def test_a_trace_gives_the_plan_its_lengths_and_traffic(trace_file):
    run = called("report", "--json", "--trace", trace_file, *MAPPING)
    assert run.returncode == 0
    plan = json.loads(run.stdout)["plan"]
    assert table_from_text(plan["table"]) == ((1, 10.0, 100.0), (1, 20.0, 200.0), (1, 40.0, 400.0))
    assert (plan["arrival_rate"], plan["arrival_cv"]) == (0.666667, 0.471405)
    assert "mine.csv: 3 requests, CSV" in run.stderr
    assert "1 rows skipped: output not a whole number" in run.stderr
    assert all(line.startswith("kvplan: ") for line in run.stderr.splitlines())


def test_a_trace_replaces_the_lengths_and_the_traffic_of_a_link(tmp_path):
    (tmp_path / "no-times.csv").write_text("prompt,output\n1,2\n")
    link = "?workload=azure-code&arrival_rate=9&arrival_cv=3&tp=2"
    run = called("report", "--json", "--link", link, "--trace", str(tmp_path / "no-times.csv"))
    plan = json.loads(run.stdout)["plan"]
    assert (plan["tp"], plan["arrival_rate"], plan["arrival_cv"]) == (2, None, None)
    assert plan["workload"] == Plan().workload


def test_the_link_of_a_trace_opens_without_the_file(trace_file):
    link = called("link", "--trace", trace_file, *MAPPING).stdout.strip()
    plan, notes = decode_link(link)
    assert notes == []
    assert evaluate(plan).setting.requests == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--trace", "no-such-file.csv"), "cannot be read"),
        (("--trace", "README.md"), "could not be guessed"),
        (("--trace", "FILE", "--column", "prompt"), "--column: must be ROLE=NAME, got 'prompt'"),
        (("--trace", "FILE", "--column", "prompt=absent"), "absent"),
        (("--trace", "FILE", "--column", "colour=when"), "colour"),
        (("--column", "prompt=when"), "--column: names a column of --trace, and none is given"),
    ],
)
def test_a_trace_that_cannot_be_read_is_one_line(trace_file, arguments, named):
    run = called("report", *(trace_file if word == "FILE" else word for word in arguments))
    assert_one_line(run)
    assert named in run.stderr


def test_models_are_found_by_words():
    found = [line.split()[0] for line in printed("presets", "--find", "gemma <10b").splitlines()]
    assert found[0] == "models"
    assert {"gemma-2-2b", "gemma-3-4b"} <= set(found)
    assert not {"gemma-3-27b", "llama-3.1-8b"} & set(found)


def test_what_no_model_matches_is_one_line():
    run = called("presets", "--find", "nothing of that name")
    assert_one_line(run)
    assert "nothing of that name" in run.stderr


def test_presets_as_json_carry_every_number_with_its_source():
    listed = json.loads(printed("presets", "--json"))
    assert set(listed) == {"model", "gpu", "workload", "plan"}
    assert [spec["id"] for spec in listed["model"]] == list(presets("model"))
    assert all(gpu["sources"]["total_bytes"]["text"] for gpu in listed["gpu"])


def test_accuracy_prints_the_documents():
    assert printed("accuracy") == accuracy_document.document()
    assert printed("accuracy", "--rates") == rate_document.document()


def test_levers_are_those_of_python():
    plan = Plan(context=32768)
    found = levers.levers(evaluate(plan))
    told = json.loads(printed("levers", "--set", "context=32768", "--json"))
    assert told == json.loads(json.dumps(levers.to_dict(plan, found)))
    assert told["schema"] == "kvplan.levers/1"
    assert printed("levers", "--set", "context=32768") == levers_words.as_text(evaluate(plan), found) + "\n"


SMALL_FLEET = {"workload": "auto", "output_mean": 20.0, "output_dist": "fixed", "step_s": 0.05, "max_num_seqs": 4}


def test_a_fleet_is_that_of_python():
    """A request takes 20 steps of 50 ms, 4 at a time: 4 a second for each replica, so that 6 a second need two."""
    plan = Plan(**SMALL_FLEET, arrival_rate=6.0)
    fields = [f"--set={name}={value}" for name, value in {**SMALL_FLEET, "arrival_rate": 6.0}.items()]
    told = json.loads(printed("fleet", "--json", *fields))
    assert told == json.loads(json.dumps(fleet_search.to_dict(plan, fleet_search.search(plan))))
    assert (told["schema"], told["fleet"]["replicas"], told["fleet"]["gpus"]) == ("kvplan.fleet/1", 2, 3)
    assert printed("fleet", *fields).startswith(
        "2 replicas of one H100 SXM meet TTFT 2 s and TPOT 50 ms at the peak; 3 GPUs"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fleet", "--set", "workload=auto"], "arrival_rate: a fleet needs requests a second above 0"),
        (["fleet", "--set", "model=llama-3.1-405b"], "GiB"),
        (["fleet", "--set", "gpu_hour_usd=-1"], "gpu_hour_usd: Input should be greater than or equal to 0"),
        (["fleet", "--set", "price_date=soon"], "price_date: String should match pattern"),
        (["levers", "--set", "gpu=h1000"], "gpu: no preset named"),
        (["levers", "--set", "peak_to_mean=0.5"], "peak_to_mean: Input should be greater than or equal to 1"),
    ],
)
def test_what_has_no_fleet_and_no_levers_is_one_line(arguments, named):
    run = called(*arguments)
    assert_one_line(run)
    assert named in run.stderr


def test_a_plan_that_does_not_fit_has_levers_that_would_help():
    assert "would run" in printed("levers", "--set", "model=llama-3.1-70b").splitlines()[0]


def test_the_presets_that_are_shipped_pass_the_check():
    assert output("presets", "--check") == output("presets")


def test_a_broken_preset_is_named_and_fails_only_the_check(tmp_path):
    for folder in ("kvplan", "presets"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "presets/gpus/l4.json").write_text("{}")
    listed, checked = kvplan("presets", cwd=tmp_path), kvplan("presets", "--check", cwd=tmp_path)
    assert (listed.returncode, checked.returncode) == (0, 2)
    for run in (listed, checked):
        assert run.stderr.startswith("kvplan: gpus/l4.json: id: ")
        assert all(line.startswith("kvplan: ") for line in run.stderr.splitlines())
        assert "  h200 " in run.stdout
        assert "  l4 " not in run.stdout


# What does not


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--set", "colour=red"], "colour: "),
        (["--set", "tp=0"], "tp: Input should be greater than or equal to 1, got '0'"),
        (["--set", "tp=many"], "got 'many'"),
        (["--set", "tp="], "tp: "),
        (["--set", "gpu_memory_utilization=nan"], "got 'nan'"),
        (["--set", "kv_dtype=fp7"], "got 'fp7'"),
        (["--set", "context"], "FIELD=VALUE, got 'context'"),
        (["--set", ""], "FIELD=VALUE"),
        (["--set", "=4"], "no field"),
        (["--set", "tp=0", "--set", "colour=red"], "colour: "),
        (["--set", f"{'c' * 10_000}=red"], "no field"),
        (["--set", f"{'c' * 10_000}"], "FIELD=VALUE"),
        (["--set", "tp=" + "9" * 10_000], "tp: "),
        (["--set", "col\nour=red"], "no field"),
        (["--set", "tp=2\n3"], "tp: "),
        (["--set", "model=llama-3.1-9b"], "nearest: llama-3.1-8b"),
        (["--set", "model=auto"], "model: "),
        (["--set", "gpu=h100"], "h100-sxm"),
        (["--set", "workload=no-such-thing"], "workload: "),
        (["--preset", "no-such-thing"], "plan: no preset named 'no-such-thing'"),
        (["--preset", "no\nsuch\nthing"], "plan: "),
        (["--preset", ""], "plan: "),
        (["--preset", READY, "--link", "?tp=2"], "--preset and --link"),
        (["--link", "?tp=2", "--plan", "plan.json"], "--link and --plan"),
        (["--preset", READY, "--set", "tp=0"], "tp: "),
    ],
    ids=lambda value: " ".join(value)[:40].replace("\n", "\\n") if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, named):
    run = called("report", *arguments)
    assert_one_line(run)
    assert named in run.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--set", "colour=red"],
        ["report", "--json", "--set", "tp=0"],
        ["report", "--set", "model=no-such-thing"],
        ["report", "--preset", "no-such-thing"],
        ["report", "--preset", READY, "--link", "?tp=2"],
        ["link", "--set", "context"],
    ],
)
def test_a_process_given_bad_input_ends_with_one_line_and_exit_code_2(arguments):
    assert_one_line(kvplan(*arguments))


@pytest.mark.parametrize("arguments", [["--set", "tp=0"], ["--set", "model=no-such-thing"], ["--preset", "x"]])
def test_a_bad_plan_has_no_link(arguments):
    assert_one_line(called("link", *arguments))


@pytest.mark.parametrize(
    "arguments",
    [[], ["reprot"], ["report", "--colour"], ["report", "--set"], ["report", "extra"], ["presets", "--jso"]],
)
def test_a_command_that_cannot_be_read_is_one_line_and_exit_code_2(arguments):
    assert_one_line(called(*arguments))


def test_a_partly_bad_link_is_reported_and_says_what_was_ignored():
    run = called("report", "--json", "--link", "?tp=4&colour=red&context=0&model=no-such-thing")
    assert run.returncode == 0
    assert json.loads(run.stdout) == as_json(Plan(tp=4))
    lines = run.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("kvplan: ") for line in lines)
    assert [name for name in ("colour", "context", "model") if not any(f"{name}: " in line for line in lines)] == []


def test_what_is_ignored_from_a_link_takes_one_line_whatever_its_name():
    run = called("link", "--link", f"?{quote('a' + chr(10) + 'b')}=1&tp=4")
    assert decode_link(run.stdout)[0] == Plan(tp=4)
    assert run.stderr.startswith("kvplan: ")
    assert len(run.stderr.splitlines()) == 1


def test_a_link_with_other_results_says_which_and_the_report_is_that_of_its_plan():
    link = encode_link(Plan(tp=4)).replace("&made=", "&made=0.0.1-")
    ceiling = evaluate(Plan(tp=4)).capacity.batch_ceiling
    older = link.replace(f"&r={ceiling}.", f"&r={ceiling - 1}.")
    run = called("report", "--json", "--link", older, "--set", "context=4096")
    assert json.loads(run.stdout) == as_json(Plan(tp=4, context=4096))
    first, second = run.stderr.splitlines()
    assert first.startswith("kvplan: This link recorded other results than its plan has now (kvplan 0.0.1-")
    assert second == f"kvplan: Batch ceiling: {ceiling - 1} → {ceiling} sequences, +1 (+{1 / (ceiling - 1):.1%})"
    assert called("report", "--link", link).stderr == ""


# A plan as a file


@given(known_plans())
def test_a_plan_that_was_printed_is_the_plan_again(tmp_path_factory, plan):
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    path.write_text(printed("plan", "--link", encode_link(plan)))
    assert path.read_text() == to_json(plan)
    assert printed("plan", "--plan", str(path)) == to_json(plan)


def test_options_go_on_top_of_a_plan_that_was_saved(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(to_json(Plan(tp=4)))
    expected = as_json(Plan(tp=4, context=4096))
    assert json.loads(printed("report", "--json", "--plan", str(path), "--set", "context=4096")) == expected


def test_what_a_saved_plan_has_wrong_is_said_and_the_rest_is_used(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"tp": 4, "context": 0}')
    run = called("report", "--json", "--plan", str(path))
    assert json.loads(run.stdout) == as_json(Plan(tp=4))
    assert run.stderr.startswith("kvplan: ignored from the plan: context: ")
    assert len(run.stderr.splitlines()) == 1


def test_a_plan_that_cannot_be_read_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "broken.json").write_text("{")
    for name, why in (("absent.json", "cannot be read, No such file"), ("broken.json", "cannot be read as JSON")):
        run = called("report", "--plan", str(tmp_path / name))
        assert_one_line(run)
        assert run.stderr.startswith("kvplan: --plan: ")
        assert why in run.stderr


# What it needs


def test_the_headless_path_imports_neither_streamlit_nor_plotly_nor_pandas():
    program = f"""
import contextlib, io, sys
from kvplan.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    codes = [main(["report", "--preset", "{READY}"]), main(["report", "--json"]), main(["link"]), main(["presets"])]
    codes += [main([command]) for command in ("ceiling", "batching", "paging", "throughput", "review")]
    codes += [main(["figure", "--list"])]
print(codes, *sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    codes, _, modules = run.stdout.partition("] ")
    assert codes == "[" + ", ".join("0" * 10)
    found = {name.split(".")[0] for name in modules.split()}
    assert {"kvplan", "numpy", "pydantic"} <= found
    assert not found & HEAVY


@pytest.mark.parametrize("arguments", [["link"], ["report", "--json"]])
def test_a_reader_that_has_seen_enough_is_no_error(arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "kvplan", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_a_terminal_that_does_not_know_a_sign_gets_another():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    for command in ("report", "levers", "presets"):
        run = subprocess.run(
            [sys.executable, "-m", "kvplan", command], cwd=ROOT, env=environment, capture_output=True, check=True
        )
        assert run.stdout.isascii()
        assert run.stderr == b""
