"""A plan held to limits: figures worked out by hand, what is undefined and why, and the command with its exit codes."""

import contextlib
import io
import json
import os
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from strategies import known_plans

from kvplan import Plan, cli, decode_link, encode_link, evaluate, fleet_search, load_preset, model_from_hf_config
from kvplan.check import CheckResult, check, sentence, serves
from kvplan.expectations import EXPECTATIONS
from kvplan.specs import Frozen
from kvplan.verdict import ceiling, plain
from kvplan.version import VERSION

ROOT = Path(__file__).parents[1]
READY = "llama-70b-chat-4xh100"
GIB = 2**30

EIGHT_GIB = Plan(kv_cache_memory_bytes=8 * GIB, workload="auto", prompt_mean=100, output_mean=20, output_dist="fixed")
"""Llama 3.1 8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB a token, so 2 MiB a block of 16 tokens: 4,096
blocks, 65,536 tokens, 8 requests of 8,192. One block is the null block, so 4,095 x 16 = 65,520 tokens start."""
SMALL = Plan(workload="auto", output_mean=20.0, output_dist="fixed", step_s=0.05, max_num_seqs=4, arrival_rate=6.0)
"""A request takes 20 steps of 50 ms, four at a time: a replica completes four a second."""
TOO_LARGE = Plan(model="llama-3.1-70b")
"""131 GiB of weights on one device of 79."""

PATHS = {
    "binding": "capacity.binding",
    "min_batch_ceiling": "capacity.batch_ceiling",
    "min_max_concurrency": "engine.max_concurrency",
    "min_kv_cache_tokens": "engine.kv_cache_tokens",
    "min_num_blocks": "engine.num_blocks",
    "max_waste_fraction": "paging.waste_share",
    "min_tokens_per_s": "throughput.tokens_per_s",
    "min_requests_per_s": "throughput.requests_per_s",
    "max_ttft_s": "throughput.ttft_s",
    "max_tpot_s": "throughput.tpot_s",
    "max_replicas": "fleet.replicas",
    "min_gain": "batching.gain",
}
"""Where a report says the same."""
SIMULATED = ("max_ttft_p95_s", "max_tpot_p95_s")


def only(plan, name, limit, model=None):
    [found] = check(plan, {name: limit}, model)
    return found


def called(*arguments):
    """The command in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as stdout, contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = cli.main(["check", *map(str, arguments)])
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def in_a_process(*arguments, cwd):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-m", "kvplan", "check", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


# Figures worked out by hand


@pytest.mark.parametrize(
    ("plan", "name", "value", "unit"),
    [
        (EIGHT_GIB, "fits", True, ""),
        (EIGHT_GIB, "binding", "memory", ""),
        (EIGHT_GIB, "min_batch_ceiling", 8, "sequences"),
        (EIGHT_GIB, "min_memory_ceiling", 8, "sequences"),
        (EIGHT_GIB, "min_max_concurrency", 8.0, "requests"),
        (EIGHT_GIB, "min_kv_cache_tokens", 65_536, "tokens"),
        (EIGHT_GIB, "min_num_blocks", 4_096, "blocks"),
        (EIGHT_GIB, "min_pool_gib", 8.0, "GiB"),
        (EIGHT_GIB, "min_context", 65_520, "tokens"),
        # 120 tokens are 7.5 blocks of 16, so half a block of eight is empty.
        (EIGHT_GIB, "max_waste_fraction", 8 / 128, "of booked slots"),
        # Equal lengths leave nothing to wait for.
        (EIGHT_GIB, "min_gain", 1.0, "times"),
        (EIGHT_GIB.model_copy(update={"dp": 3, "tp": 2, "pp": 2}), "max_gpus", 12, "GPUs"),
        (EIGHT_GIB.model_copy(update={"dp": 3, "gpu_hour_usd": 2.5}), "max_usd_per_hour", 7.5, "USD/h"),
        # Six a second at four a replica need two, and one is spare.
        (SMALL, "max_replicas", 2, "replicas"),
        (SMALL, "max_gpus", 3, "GPUs"),
        (SMALL.model_copy(update={"gpu_hour_usd": 2.5}), "max_usd_per_hour", 7.5, "USD/h"),
        # 7.50 dollars an hour over 6 x 20 tokens a second.
        (
            SMALL.model_copy(update={"gpu_hour_usd": 2.5}),
            "max_usd_per_million_tokens",
            7.5 / (120 * 3600) * 1e6,
            "USD",
        ),
        (SMALL, "max_tpot_s", 0.05, "s"),
    ],
)
def test_a_figure_is_what_a_hand_makes_of_the_plan(plan, name, value, unit):
    found = only(plan, name, value if isinstance(value, (bool, str)) else 1)
    assert found.value == pytest.approx(value)
    assert found.unit == unit


def test_on_demand_a_request_books_what_it_holds_and_half_a_block():
    """EIGHT_GIB's requests grow from 100 to 120 tokens; a mean of 110.5 or so and half a block are 7.4 blocks."""
    found = only(EIGHT_GIB, "min_on_demand_ceiling", 1)
    assert found.value == evaluate(EIGHT_GIB).capacity.on_demand_ceiling
    assert 4_096 / 7.6 < found.value < 4_096 / 7.2


def test_the_longest_context_starts_and_the_next_does_not():
    longest = only(EIGHT_GIB, "min_context", 1).value
    starts = [
        evaluate(EIGHT_GIB.model_copy(update={"context": length})).engine.fits for length in (longest, longest + 1)
    ]
    assert starts == [True, False]


def test_the_longest_context_ends_at_what_the_model_was_trained_for_or_at_the_plans_own():
    roomy = Plan(kv_cache_memory_bytes=64 * GIB)
    assert only(roomy, "min_context", 1).value == 131_072
    assert only(roomy.model_copy(update={"context": 200_000}), "min_context", 1).value == 200_000


def test_a_plan_whose_context_does_not_start_has_a_shorter_one_that_does_and_misses_all_the_same():
    found = only(EIGHT_GIB.model_copy(update={"context": 100_000}), "min_context", 32_768)
    assert (found.value, found.passed, found.margin) == (65_520, False, None)
    assert found.reason.startswith("Not one sequence of 100,000 tokens fits")


def test_replicas_that_the_search_of_a_fleet_finds_pass_with_the_targets_as_limits_and_fewer_do_not():
    found = fleet_search.search(SMALL)
    limits = {"max_ttft_p95_s": 2.0, "max_tpot_p95_s": 0.05000001}
    enough = check(SMALL.model_copy(update={"dp": found.replicas}), limits)
    fewer = check(SMALL.model_copy(update={"dp": found.replicas - 1}), limits)
    assert [each.passed for each in enough] == [True, True]
    assert [each.value for each in enough] == pytest.approx([max(found.trials[0].ttft_s), 0.05])
    assert [each.passed for each in fewer] == [False, False]
    assert fewer[0].reason == "6.00 requests/s come to a replica at the peak, more than one completes"


def test_a_simulated_time_is_the_same_every_time():
    plan = SMALL.model_copy(update={"dp": 2})
    assert only(plan, "max_ttft_p95_s", 0.2) == only(plan, "max_ttft_p95_s", 0.2)


def test_a_model_of_ones_own_can_be_handed_over():
    config = {"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 4096, "num_attention_heads": 32,
              "num_key_value_heads": 8, "max_position_embeddings": 300_000, "vocab_size": 1000,
              "intermediate_size": 1000}  # fmt: skip
    model = model_from_hf_config(config)
    # Half the layers of Llama 3.1 8B: 1 MiB a block.
    assert only(EIGHT_GIB, "min_num_blocks", 1, model).value == 8_192
    assert only(EIGHT_GIB, "min_context", 1, model).value == 8_191 * 16
    trial = only(SMALL.model_copy(update={"dp": 2}), "max_tpot_p95_s", 1, model)
    assert trial.value == pytest.approx(0.05)


# What is undefined


@pytest.mark.parametrize(
    ("plan", "name", "reason"),
    [
        (EIGHT_GIB, "max_replicas", "no arrival_rate"),
        (EIGHT_GIB, "max_ttft_p95_s", "no arrival_rate"),
        (EIGHT_GIB, "max_tpot_p95_s", "no arrival_rate"),
        (EIGHT_GIB, "max_usd_per_hour", "no gpu_hour_usd"),
        (SMALL, "max_usd_per_hour", "no gpu_hour_usd"),
        (EIGHT_GIB.model_copy(update={"gpu_hour_usd": 2.0}), "max_usd_per_million_tokens", "no arrival_rate"),
        (
            SMALL.model_copy(update={"tpot_s": 0.04}),
            "max_gpus",
            "not even one request at a time meets ttft_s 2 s and tpot_s 40 ms",
        ),
        (SMALL.model_copy(update={"output_mean": 1.0}), "max_tpot_p95_s", "no output has a second token"),
        (
            Plan(weights_gib=0),
            "max_ttft_s",
            "no step time is known, as the device has no rates or the model no weights",
        ),
        (Plan(model="no-such-thing"), "fits", "model: no preset named 'no-such-thing'"),
    ],
)
def test_what_a_plan_does_not_have_is_missed_and_says_why(plan, name, reason):
    found = only(plan, name, True if name == "fits" else 10**6)
    assert (found.value, found.margin, found.passed) == (None, None, False)
    assert found.reason.startswith(reason)
    assert found.reason in sentence(found)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (TOO_LARGE, "Does not fit: 131.4 GiB of weights"),
        (Plan(tp=7), "Not served. tp: the 32 attention heads"),
        (Plan(kv_cache_memory_bytes=100 * GIB), "Does not fit: with a pool of 100.0 GiB as given"),
        (Plan(tenant_quota_fraction=0.001), "Not one sequence of 8,192 tokens runs"),
    ],
)
def test_a_plan_that_cannot_be_served_meets_no_limit_at_all(plan, reason):
    limits = {name: 0 if name.startswith("min_") else 1 for name in EXPECTATIONS if name[:4] in ("min_", "max_")}
    found = check(plan, limits | {"min_context": 1})
    assert len(found) == len(limits) > 15
    assert not any(each.passed for each in found)
    assert {each.margin for each in found} == {None}
    assert {each.reason for each in found} == {plain(ceiling(evaluate(plan)).sentence)}
    assert found[0].reason.startswith(reason)


def test_a_single_sequence_is_enough_to_be_served():
    found = only(EIGHT_GIB.model_copy(update={"context": 65_520}), "min_batch_ceiling", 1)
    assert (found.value, found.margin, found.passed) == (1, 0, True)


@pytest.mark.parametrize("name", ["min_memory_ceiling", "min_on_demand_ceiling"])
def test_memory_for_one_sequence_that_does_not_start_beside_the_null_block_is_memory_for_none(name):
    plan = EIGHT_GIB.model_copy(update={"context": 65_536})
    assert evaluate(plan).capacity.memory_ceiling == 1
    assert only(plan, name, 1).value == 0


def test_that_a_plan_does_not_fit_can_be_expected():
    assert only(TOO_LARGE, "fits", False).passed
    assert only(TOO_LARGE, "binding", "does_not_fit").passed
    assert not only(TOO_LARGE, "fits", True).passed
    assert not only(Plan(kv_cache_memory_bytes=100 * GIB), "fits", True).passed


# Laws


def limit_of(name):
    """Limits of every size that a name may have."""
    if name == "binding":
        return st.sampled_from(("memory", "max_num_seqs", "tenant_quota", "does_not_fit"))
    if name == "fits":
        return st.booleans()
    if name == "min_context":
        return st.integers(1, 2**24)
    if name == "max_waste_fraction":
        return st.floats(0, 1)
    return st.integers(0, 100) | st.integers(0, 10**7)


LIMITS = st.fixed_dictionaries(
    {}, optional={name: limit_of(name) for name in EXPECTATIONS if name not in (*SIMULATED, "min_context")}
).filter(bool)


@given(known_plans(), LIMITS)
def test_a_limit_is_met_exactly_where_the_margin_is_not_negative(plan, limits):
    served = serves(evaluate(plan))
    for found in check(plan, limits):
        assert found.limit == limits[found.name]
        if found.name in ("fits", "binding"):
            assert (found.passed, found.margin) == (found.value == found.limit, None)
        elif found.margin is None:
            assert not found.passed
            assert found.reason
            assert found.value is None or not served
        else:
            assert served
            assert found.passed == (found.margin >= 0)
            assert found.margin == (found.value - found.limit) * (1 if found.name.startswith("min_") else -1)


@given(known_plans(tp=st.sampled_from((1, 2, 8)), pp=st.just(1)), st.sampled_from(sorted(PATHS)))
def test_the_value_is_the_reports_own(plan, name):
    report = evaluate(plan)
    [found] = check(plan, {name: "memory" if name == "binding" else 1})
    if found.value is not None:
        assert found.value == attrgetter(PATHS[name])(report)
    else:
        assert found.reason


@given(known_plans(context=st.integers(1, 300_000)))
def test_the_longest_context_is_the_plans_or_longer_exactly_where_the_plan_starts(plan):
    report = evaluate(plan)
    longest = only(plan, "min_context", 1).value
    assert (longest >= plan.context) == report.engine.fits
    assert longest <= max(plan.context, report.setting.model.max_position_embeddings)
    if longest:
        assert evaluate(plan.model_copy(update={"context": longest})).engine.fits


# What is no limit


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "expect: nothing to check, needs at least one limit"),
        ({"min_batch_celing": 3}, "expect.min_batch_celing: is no expectation; nearest: min_batch_ceiling"),
        ({"qqq": 3}, "expect.qqq: is no expectation"),
        ({"a\nb" * 100: 3}, "expect.a?ba?b"),
        ({"min_batch_ceiling": -1}, "expect.min_batch_ceiling: Input should be greater than or equal to 0, got -1"),
        ({"min_batch_ceiling": 1.5}, "expect.min_batch_ceiling: Input should be a valid integer"),
        ({"min_batch_ceiling": True}, "expect.min_batch_ceiling: Input should be a number, got True"),
        ({"min_batch_ceiling": None}, "expect.min_batch_ceiling: Input should be a valid integer, got None"),
        ({"min_batch_ceiling": [3]}, "expect.min_batch_ceiling: Input should be a valid integer, got [3]"),
        ({"max_ttft_s": float("nan")}, "expect.max_ttft_s: Input should be a finite number, got nan"),
        ({"max_ttft_s": float("inf")}, "expect.max_ttft_s: Input should be a finite number, got inf"),
        ({"max_ttft_s": -0.5}, "expect.max_ttft_s: Input should be greater than or equal to 0, got -0.5"),
        ({"max_ttft_s": True}, "expect.max_ttft_s: Input should be a number, got True"),
        ({"max_waste_fraction": 5}, "expect.max_waste_fraction: Input should be less than or equal to 1, got 5"),
        ({"min_context": 0}, "expect.min_context: Input should be greater than or equal to 1, got 0"),
        ({"fits": "perhaps"}, "expect.fits: Input should be a valid boolean"),
        ({"binding": "memry"}, "expect.binding: Input should be 'does_not_fit', 'memory', 'tenant_quota' or"),
        ({"max_gpus": -1, "min_gain": -1}, "; expect.min_gain: "),
    ],
)
def test_what_is_no_limit_is_one_line_with_field_rule_and_value(limits, message):
    with pytest.raises(ValueError, match="expect") as error:
        check(Plan(), limits)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 400


# The command


CHAT = """
name = "chat"
description = "evening peak"
preset = "llama-70b-chat-4xh100"
context = 16384

[expect]
min_batch_ceiling = 24
fits = true
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "chat.toml").write_text(CHAT)
    (tmp_path / "large.json").write_text(json.dumps({"model": "llama-3.1-70b", "expect": {"min_batch_ceiling": 1}}))
    (tmp_path / "broken.toml").write_text("tp = 0\n[expect]\nfits = true\n")
    return tmp_path


def test_exit_codes_of_a_process_are_0_met_1_missed_and_2_bad_input(folder):
    met = in_a_process("chat.toml", cwd=folder)
    missed = in_a_process("chat.toml", "large.json", cwd=folder)
    bad = in_a_process("large.json", "broken.toml", "absent.json", "chat.toml", cwd=folder)
    assert [run.returncode for run in (met, missed, bad)] == [0, 1, 2]
    assert (met.stderr, missed.stderr) == ("", "")
    assert bad.stdout.index("large.json: Does not fit") < bad.stdout.index("chat.toml: chat: 27 sequences")
    assert bad.stderr.splitlines() == [
        "kvplan: broken.toml: tp: Input should be greater than or equal to 1, got 0",
        "kvplan: absent.json: cannot be read, No such file or directory",
    ]


def test_the_text_has_a_header_and_a_line_for_each_limit(folder):
    run = called(folder / "chat.toml", "--expect", "max_ttft_s=0.01", "--expect", "max_usd_per_hour=1000")
    header, *lines = run.stdout.splitlines()
    report = evaluate(load_preset(READY).model_copy(update={"context": 16384}))
    assert header == f"{folder / 'chat.toml'}: chat: 27 sequences of 16,384 tokens fit on 4 × H100 SXM"
    assert lines[0].split() == ["ok", "min_batch_ceiling", "27", "≥", "24", "+3", "+12.5%", "sequences"]
    assert lines[1].split() == ["ok", "fits", "true", "=", "true"]
    ttft = report.throughput.ttft_s
    assert lines[2].split()[:5] == ["MISS", "max_ttft_s", f"{ttft:.4g}", "≤", "0.01"]
    assert lines[2].split()[5:] == [f"{0.01 - ttft:.4g}", f"{(0.01 - ttft) / 0.01:+.1%}", "s"]
    assert lines[3].split(maxsplit=6)[-1] == "no gpu_hour_usd"
    assert run.returncode == 1


def test_why_a_plan_cannot_be_served_stands_once_above_its_lines(folder):
    run = called(folder / "large.json", "--expect", "max_gpus=8")
    assert run.stdout.count("Does not fit") == 1
    assert [line.split()[0] for line in run.stdout.splitlines()[1:]] == ["MISS", "MISS"]


def test_a_limit_of_the_option_replaces_that_of_a_file(folder):
    assert called(folder / "chat.toml", "--expect", "min_batch_ceiling=28").returncode == 1
    assert called(folder / "chat.toml", "--expect", "min_batch_ceiling = 27").returncode == 0


def test_the_order_of_the_limits_is_that_of_the_file(folder):
    (folder / "order.toml").write_text("[expect]\nmin_num_blocks = 1\nfits = true\nmin_context = 1\n")
    printed = json.loads(called(folder / "order.toml", "--json").stdout)
    assert [each["name"] for each in printed["files"][0]["expectations"]] == ["min_num_blocks", "fits", "min_context"]


def test_json_says_what_python_says(folder):
    run = called(folder / "chat.toml", folder / "large.json", folder / "broken.toml", "--json")
    printed = json.loads(run.stdout)
    assert (run.returncode, printed["schema"], printed["version"], printed["passed"]) == (
        2, "kvplan.check/1", VERSION, False,
    )  # fmt: skip
    chat, large, broken = printed["files"]
    plan = load_preset(READY).model_copy(update={"context": 16384})
    assert (chat["file"], chat["name"], chat["passed"], chat["fits"]) == (str(folder / "chat.toml"), "chat", True, True)
    assert Plan.model_validate(chat["plan"]) == plan
    assert decode_link(chat["link"]) == (plan, [])
    assert chat["expectations"][0] == {
        "name": "min_batch_ceiling", "value": 27, "limit": 24, "margin": 3, "unit": "sequences", "passed": True,
        "reason": None,
    }  # fmt: skip
    assert (large["passed"], large["fits"], large["refused"], large["error"]) == (False, False, None, None)
    assert large["expectations"][0]["reason"] == large["sentence"]
    assert (broken["plan"], broken["passed"], broken["expectations"]) == (None, False, [])
    assert broken["error"] == "tp: Input should be greater than or equal to 1, got 0"


def test_the_sentence_of_an_engine_that_refuses_is_in_the_json(tmp_path):
    (tmp_path / "odd.toml").write_text("tp = 7\nexpect.fits = true\n")
    [odd] = json.loads(called(tmp_path / "odd.toml", "--json").stdout)["files"]
    assert odd["refused"] == evaluate(Plan(tp=7)).engine.refused
    assert odd["refused"].startswith("tp: the 32 attention heads")


def test_the_json_is_described_to_the_last_key(folder):
    answer = TypeAdapter(CheckResult)
    printed = json.loads(called(folder / "chat.toml", folder / "large.json", folder / "broken.toml", "--json").stdout)
    assert json.loads(answer.dump_json(answer.validate_python(printed))) == printed
    schema = answer.json_schema(mode="serialization")
    described = {"CheckResult": schema, **schema["$defs"]}
    for name, keys in (
        ("CheckResult", printed),
        ("PlanResult", printed["files"][0]),
        ("Verdict", printed["files"][0]["expectations"][0]),
    ):
        assert set(described[name]["required"]) == set(described[name]["properties"]) == set(keys)
    assert described["Verdict"]["properties"]["name"]["enum"] == list(EXPECTATIONS)


def test_a_link_in_a_file_whose_results_changed_is_a_line_and_changes_no_verdict(folder):
    path = folder / "linked.toml"
    path.write_text(f'link = "{encode_link(Plan(tp=4)).replace("&r=", "&r=9")}"\nexpect.fits = true')
    run = called(str(path))
    assert run.returncode == 0
    first, second = run.stderr.splitlines()
    assert first.startswith(f"kvplan: {path}: This link recorded other results")
    assert second.startswith(f"kvplan: {path}: Batch ceiling: ")


def test_a_plan_of_options_is_checked_without_a_file():
    run = called("--preset", READY, "--set", "context=16384", "--expect", "min_batch_ceiling=24", "--json")
    [found] = json.loads(run.stdout)["files"]
    assert (run.returncode, found["file"], found["name"]) == (0, None, None)
    assert Plan.model_validate(found["plan"]) == load_preset(READY).model_copy(update={"context": 16384})
    header = called("--link", "?tp=7", "--expect", "fits=false").stdout.splitlines()[0]
    assert header.startswith("Not served. tp: ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--expect: nothing to check"),
        (["--preset", READY], "--expect: nothing to check"),
        (["--expect", "min_batch_ceiling"], "--expect: must be NAME=LIMIT, got 'min_batch_ceiling'"),
        (["--expect", "min_batch_ceiling=nan"], "--expect min_batch_ceiling: Input should be a valid integer"),
        (["--expect", "max_ttft_s=nan"], "--expect max_ttft_s: Input should be a finite number, got 'nan'"),
        (["--expect", "max_ttft=1"], "--expect max_ttft: is no expectation; nearest: max_ttft_s"),
        (["--expect", "fits=true", "--set", "tp=0"], "tp: "),
        (["--expect", "fits=true", "--set", "model=no-such-thing"], "model: no preset named"),
        (["--expect", "fits=true", "--hf-config", "absent.json"], "--hf-config: absent.json cannot be read"),
        (["FILE", "--set", "tp=4"], "--set: cannot be given with files, as each of them is a plan"),
        (["FILE", "--preset", READY], "--preset: cannot be given with files"),
        (["FILE", "--vllm-args", "-tp 4"], "--vllm-args: cannot be given with files"),
        (["FILE", "--hf-config", "x"], "--hf-config: cannot be given with files"),
        (["FILE", "--expect", "max_gpus=-1"], "--expect max_gpus: "),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_a_command_that_cannot_be_used_is_one_line_and_exit_code_2(folder, arguments, named):
    run = called(*(folder / "chat.toml" if word == "FILE" else word for word in arguments))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("kvplan: ")
    assert len(run.stderr.splitlines()) == 1
    assert named in run.stderr


def test_a_junit_file_that_cannot_be_written_is_bad_input_after_the_answer(folder):
    run = called(folder / "chat.toml", "--junit", folder / "no-folder/junit.xml")
    assert run.returncode == 2
    assert "27 sequences" in run.stdout
    assert run.stderr.startswith("kvplan: --junit: ")
    assert "No such file or directory" in run.stderr


def test_every_expectation_says_what_it_counts_and_has_a_direction_or_is_a_value_itself():
    assert all(each.what and not each.what.endswith(".") for each in EXPECTATIONS.values())
    assert [name for name in EXPECTATIONS if name[:4] not in ("min_", "max_")] == ["fits", "binding"]
    assert all(each.unit for name, each in EXPECTATIONS.items() if name[:4] in ("min_", "max_"))


def test_no_limit_is_given_unless_it_is_asked_for():
    from kvplan.expectations import Limits

    assert issubclass(Limits, Frozen)
    assert set(Limits().model_dump().values()) == {None}


def test_the_other_commands_start_without_what_only_this_one_needs():
    program = "import sys, kvplan.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    needed = {"kvplan.check", "kvplan.expectations", "kvplan.plan_files", "kvplan.junit", "kvplan.vllm_args", "tomllib"}
    assert "kvplan.cli_check" in run.stdout.split()
    assert not needed & set(run.stdout.split())
