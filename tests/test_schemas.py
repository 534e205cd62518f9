"""What the commands print with --json is what their published schemas say, key by key."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from strategies import SERVED, known_plans, plans
from test_cli import called, kvplan, printed

from kvplan import Plan, evaluate
from kvplan.cli_options import as_json
from kvplan.schemas import COMMANDS, schema_of

PUBLISHED = Path(__file__).parents[1] / "docs/schemas"
RATED = ["--set", "arrival_rate=20", "--set", "gpu_hour_usd=2.5"]
OUTPUTS = {
    "report": [["report", "--json"], ["report", "--json", "--set", "tp=64"], ["report", "--json", "--set", "tp=3"]],
    "check": [
        ["check", "--json", "--expect", "min_batch_ceiling=10", "--expect", "fits=true", "--expect", "max_gpus=1"],
        ["check", "--json", "--set", "tp=3", "--expect", "max_ttft_p95_s=1", "--expect", "binding=memory"],
    ],
    "plan": [["plan"], ["plan", "--set", "layers=40", "--set", "kv_dtype=fp8", "--set", "gpu_hour_usd=2.5"]],
    "sweep": [
        ["sweep", "--json", "--axis", "tp=1,3,64", "--axis", "max_num_seqs=auto,4"],
        ["sweep", "--json", "--axis", "kv_dtype=auto,fp8", "--columns", "throughput,fleet,engine.refused"],
    ],
    "ceiling": [["ceiling", "--json"], ["ceiling", "--json", "--set", "tp=3", "--contexts", "1,8192"]],
    "batching": [["batching", "--json"], ["batching", "--json", "--set", "workload=auto", "--batches", "1:9:x3"]],
    "paging": [["paging", "--json"], ["paging", "--json", "--set", "model=falcon-mamba-7b"]],
    "throughput": [["throughput", "--json"], ["throughput", "--json", "--set", "tp=64"]],
    "simulate": [["simulate", "--json", "--requests", "200"], ["simulate", "--json", "--requests", "1"]],
    "levers": [["levers", "--json"], ["levers", "--json", "--set", "tp=3"]],
    "fleet": [["fleet", "--json", *RATED]],
    "log": [["log", "--json", "{log}"]],
    "presets": [["presets", "--json"], ["presets", "--json", "--find", "qwen moe"]],
}
LOG = """INFO 08-14 14:07:20 [kv_cache_utils.py:868] GPU KV cache size: 272,784 tokens
INFO 08-14 14:07:20 [kv_cache_utils.py:872] Maximum concurrency for 32,768 tokens per request: 8.32x
"""


def closed(schema):
    """The same schema, which also says that no other keys are there."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(part) for name, part in schema.items()}
    return found | {"additionalProperties": False} if "properties" in schema and "type" in schema else found


VALIDATORS = {command: Draft202012Validator(closed(schema_of(command))) for command in COMMANDS}


def test_every_command_with_json_is_tried():
    assert OUTPUTS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_schema_is_one(command):
    Draft202012Validator.check_schema(schema_of(command))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_published_file_is_what_the_command_prints(command):
    assert (PUBLISHED / f"{command}.json").read_text() == printed("schema", command)


def test_nothing_else_is_published():
    assert {path.stem for path in PUBLISHED.iterdir()} == COMMANDS.keys()


@pytest.mark.parametrize(
    ("command", "arguments"), [(command, each) for command, several in OUTPUTS.items() for each in several]
)
def test_what_is_printed_is_what_the_schema_says(command, arguments, tmp_path):
    log = tmp_path / "engine.log"
    log.write_text(LOG)
    run = called(*(argument.format(log=log) for argument in arguments))
    assert run.returncode in ((0, 1) if command == "check" else (0,)), run.stderr
    found = json.loads(run.stdout)
    VALIDATORS[command].validate(found)
    assert command == "presets" or found["schema"] == schema_of(command)["$id"]


@pytest.mark.parametrize("command", ["check", "sweep", "simulate"])
def test_a_command_in_a_process_of_its_own_prints_what_the_schema_says(command):
    run = kvplan(*OUTPUTS[command][0])
    VALIDATORS[command].validate(json.loads(run.stdout))


@settings(max_examples=40)
@given(known_plans(**SERVED))
def test_any_served_plan_reports_what_the_schema_says(plan):
    VALIDATORS["report"].validate(json.loads(as_json(evaluate(plan).to_dict())))


@settings(max_examples=40)
@given(plans())
def test_any_plan_reports_what_the_schema_says(plan):
    VALIDATORS["report"].validate(json.loads(as_json(evaluate(plan).to_dict())))


@pytest.mark.parametrize("change", [{"capacity": None}, {"schema": "kvplan.report/2"}, {"extra": 1}, {"remarks": [1]}])
def test_the_validator_finds_what_is_not_so(change):
    found = json.loads(as_json(evaluate(Plan()).to_dict())) | change
    assert not VALIDATORS["report"].is_valid(found)


def test_a_key_that_is_missing_is_found():
    found = json.loads(as_json(evaluate(Plan()).to_dict()))
    del found["engine"]["num_blocks"]
    assert not VALIDATORS["report"].is_valid(found)


def test_a_command_without_a_schema_is_bad_input():
    run = called("schema", "link")
    message = f"kvplan: schema: must be one of {', '.join(COMMANDS)}, got 'link'\n"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message)
