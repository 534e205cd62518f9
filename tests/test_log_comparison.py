"""A log beside its prediction: every difference with its reason by name, and a plan that reproduces the log."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_engine_log import READ, beside_logs, damaged, rebuilt

from kvplan import Plan, accuracy, decode_link, encode_link, evaluate, parse_engine_log
from kvplan.log_comparison import SCHEMA, compare, figure_text, read_lines, table, to_dict
from kvplan.log_text import decoded
from kvplan.units import GIB, whole_bytes

ROOT = Path(__file__).parents[1]
LLAMA, GPT_OSS, GEMMA = "meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-120b", "google/gemma-3-27b-it"
QWEN_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"
H100 = {"gpu": "h100-sxm"}


def started(*lines, model=LLAMA, tp=1, length=32768, version="0.11.0", utilization=0.9, arguments=""):
    """The log of a vLLM start: what it was told, and then what it measured."""
    return "\n".join([
        f"INFO 08-14 14:07:20 [api_server.py:1896] vLLM API server version {version}",
        f"INFO 08-14 14:07:20 [utils.py:233] non-default args: {{'model': '{model}', 'gpu_memory_utilization': "
        f"{utilization}{arguments}}}",
        f"INFO 08-14 14:07:25 [core.py:77] Initializing a V1 LLM engine (v{version}) with config: model='{model}', "
        f"max_seq_len={length}, tensor_parallel_size={tp}, pipeline_parallel_size=1, kv_cache_dtype=auto",
        *lines,
    ])  # fmt: skip


def weights(gib):
    return f"INFO 08-14 14:07:40 [gpu_model_runner.py:2653] Model loading took {gib} GiB and 3.214 seconds"


def pool(gib):
    return f"INFO 08-14 14:08:00 [gpu_worker.py:298] Available KV cache memory: {gib} GiB"


def tokens(number):
    return f"INFO 08-14 14:08:00 [kv_cache_utils.py:1087] GPU KV cache size: {number:,} tokens"


def concurrency(times, length=32768):
    return (
        f"INFO 08-14 14:08:00 [kv_cache_utils.py:1091] Maximum concurrency for {length:,} tokens per request: "
        f"{times:.2f}x"
    )


def graphs(gib):
    return f"INFO 08-14 14:07:59 [gpu_worker.py:250] Estimated CUDA graph memory: {gib} GiB total"


def non_torch(gib):
    return f"INFO 08-14 14:07:59 [gpu_worker.py:255] {gib} GiB for non-torch memory"


def peak(gib):
    return f"INFO 08-14 14:07:59 [gpu_worker.py:256] {gib} GiB for peak activation"


def free(gib, total):
    return f"INFO 08-14 14:07:26 [worker_utils.py:1] Free memory on device cuda:0 ({gib}/{total} GiB) on startup."


NO_ROOM = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (9.94 GiB). Based on the available memory, the estimated "
    "maximum model length is 81424."
)
WORKERS = "\n".join(f"(Worker_TP{rank} pid=4{rank}) {pool(gib)}" for rank, gib in enumerate((33.1, 32.5)))
SGLANG = (
    "[2026-04-02 08:00:00] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B-Instruct', tp_size=1)\n"
    "[2026-04-02 08:01:05 TP0] KV Cache is allocated. #tokens: 447283, K size: 27.30 GB, V size: 27.30 GB"
)


def found_in(text, changes=None):
    return compare(parse_engine_log(text), H100 if changes is None else changes)


def names(found):
    return [reason.name for reason in found.reasons]


PLAIN = started(weights(14.9889), pool(51.36), tokens(420_736), concurrency(12.84))


# Predicted beside measured


def test_a_prediction_stands_beside_what_was_measured():
    rows = {row.figure: row for row in found_in(PLAIN).rows}
    report = evaluate(Plan(context=32768, engine_version="0.11.0", gpu_memory_utilization=0.9))
    assert rows["Weights"][1:4] == ("GiB/device", 14.9889, round(report.memory.weight_bytes / GIB, 2))
    assert rows["KV pool"][1:4] == ("GiB/device", 51.36, round(report.memory.pool_bytes / GIB, 2))
    assert rows["KV cache tokens"][1:4] == ("tokens", 420_736, report.engine.kv_cache_tokens)
    assert rows["Concurrency"][1:4] == ("requests", 12.84, round(report.engine.max_concurrency, 2))
    assert list(rows) == ["Weights", "KV pool", "KV cache tokens", "Concurrency"]


def test_tokens_and_concurrency_follow_from_the_logs_own_pool():
    """By hand: 54.61 GiB hold 27,960 blocks of 2 MiB, and a request of 32,768 tokens takes 2,048 of them."""
    rows = {row.figure: row for row in found_in(started(pool(54.61), tokens(447_360), concurrency(13.65))).rows}
    assert rows["KV cache tokens"].from_own_pool == 27_960 * 16
    assert rows["Concurrency"].from_own_pool == round(27_960 / 2_048, 2)
    assert rows["KV pool"].from_own_pool is None


def test_a_start_that_is_as_predicted_needs_no_reason():
    assert found_in(PLAIN).reasons == ()
    assert found_in(PLAIN).missing == ()


def test_the_plan_is_what_the_log_states():
    log = started(pool(9), free(78.6, 79.1), tp=4, length=16384, arguments=", 'max_num_seqs': 64")
    assert compare(parse_engine_log(log)).plan == Plan(
        tp=4, context=16384, engine_version="0.11.0", gpu_memory_utilization=0.9, gpu_memory_gib=79.1, max_num_seqs=64
    )


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (LLAMA, "llama-3.1-8b"),
        ("/models/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("/models/Llama-3.1-8B-Instruct/", "llama-3.1-8b"),
        (GPT_OSS, "gpt-oss-120b"),
        (GEMMA, "gemma-3-27b"),
        (QWEN_NEXT, "qwen3-next-80b-a3b"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b"),
        ("acme/Llama-3.1-8B-Instruct-AWQ", "llama-3.1-8b"),
    ],
)
def test_a_preset_is_told_from_the_name_that_an_engine_prints(name, model):
    found = compare(parse_engine_log(started(pool(9), model=name)))
    assert found.plan.model == model
    assert found.report is not None
    assert not any(line.startswith("model:") for line in found.missing)


@pytest.mark.parametrize(("ending", "width"), [("-FP8", "fp8"), ("-AWQ", "int4"), ("-GPTQ-Int4", "int4"), ("", None)])
def test_the_width_of_quantised_weights_is_told_from_the_name(ending, width):
    assert compare(parse_engine_log(started(model=f"acme/Llama-3.1-8B-Instruct{ending}"))).plan.weight_dtype == width


def test_a_model_that_is_no_preset_is_asked_for():
    found = compare(parse_engine_log(started(pool(9), tokens(500), model="acme/model-7b")))
    assert found.report is None
    assert {row.predicted for row in found.rows} == {None}
    assert any(line.startswith("model: no preset named 'acme/model-7b'") for line in found.missing)


def test_what_the_log_leaves_open_is_that_of_the_plan_it_is_laid_beside():
    base = Plan(model="qwen3-8b", gpu="l4", tp=2, max_num_seqs=7, kv_cache_memory_bytes=1)
    plan = compare(parse_engine_log(pool(9)), base=base).plan
    assert plan == base.model_copy(update={"kv_cache_memory_bytes": None})
    assert compare(parse_engine_log(pool(9)), {"tp": "4", "gpu": "h200"}, base).plan.tp == 4


def test_a_log_of_no_engine_asks_for_one():
    found = compare(parse_engine_log("hello"))
    assert (found.rows, found.reasons, found.report) == ((), (), None)
    (line,) = found.missing
    assert line.startswith("nothing of a start-up was found")


# Why they differ


REASONS = {
    "smallest rank": (started(WORKERS, tp=2), H100, ["smallest rank", "per rank"]),
    "smallest rank, by tokens": (
        started(pool(50.0), tokens(800_000), tp=2),
        H100,
        ["per rank", "smallest rank"],
    ),
    "per rank": (started(weights(7.5), tp=2), H100, ["per rank"]),
    "GB are GiB": (SGLANG, H100, ["GB are GiB"]),
    "explicit size": (
        started(pool(4.0), arguments=", 'kv_cache_memory_bytes': 4294967296"),
        H100,
        ["explicit size"],
    ),
    "other processes, at the start": (started(free(70.1, 79.1)), {}, ["other processes"]),
    "other processes, outside the engine": (started(non_torch(4.09)), H100, ["other processes"]),
    "does not fit": (started(NO_ROOM, length=131_072), {"gpu": "a6000"}, ["does not fit"]),
    "older token line": (
        started(pool(20.0), tokens(37_440), model=GEMMA, length=4096),
        {"gpu": "b200"},
        ["older token line", "padding"],
    ),
    "graphs": (
        started(pool(45.0), graphs(6.5), version="0.24.0"),
        H100,
        ["graphs"],
    ),
    "window reserve": (
        started(pool(20.0), tokens(50_000), model=GEMMA, length=4096),
        {"gpu": "b200"},
        ["window reserve", "padding"],
    ),
    "unified memory": (started(pool(40.0)), {"gpu": "gb10"}, ["unified memory"]),
    "GB for GiB, less": (started(pool(47.83)), H100, ["GB for GiB"]),
    "GB for GiB, more": (started(pool(55.15)), H100, ["GB for GiB"]),
    "total for one rank": (started(weights(14.96), tp=2), H100, ["per rank", "total for one rank"]),
    "more is loaded": (started(weights(17.2)), H100, ["more is loaded"]),
    "less is loaded": (started(weights(8.5)), H100, ["less is loaded"]),
    "graphs inside": (started(peak(5.3), graphs(0.6)), H100, ["graphs inside"]),
    "smaller step": (started(peak(1.3)), H100, ["smaller step"]),
    "larger step": (started(peak(9.4)), H100, ["larger step"]),
    "another layout": (started(pool(54.61), tokens(894_720)), H100, ["another layout"]),
}


@pytest.mark.parametrize(("text", "changes", "expected"), REASONS.values(), ids=REASONS)
def test_a_difference_has_its_reason_by_name(text, changes, expected):
    found = found_in(text, changes)
    assert sorted(names(found)) == sorted(expected)
    assert all(reason.sentence == reason.sentence.strip(" .") != "" for reason in found.reasons)


NEW = {
    "gpt-oss-120b": {"model": GPT_OSS, "length": 131_072},
    "gemma-3-27b": {"model": GEMMA, "length": 8192},
    "qwen3-next-80b-a3b": {"model": QWEN_NEXT, "length": 65_536},
}


def of_own_pool(plan, gib):
    """What an engine prints that has this pool."""
    return evaluate(plan.model_copy(update={"kv_cache_memory_bytes": whole_bytes(gib)})).engine


@pytest.mark.parametrize("model", NEW)
def test_tokens_of_a_hybrid_are_concurrency_times_length(model):
    stated = {"version": "0.24.0", **NEW[model]}
    plan = Plan(model=model, gpu="b200", context=stated["length"], engine_version="0.24.0")
    engine = of_own_pool(plan, 20.0)
    found = found_in(started(pool(20.0), tokens(engine.kv_cache_tokens), **stated), {"gpu": "b200"})
    assert "concurrency × length" in names(found)
    older = found_in(started(pool(20.0), tokens(engine.older_token_line), **stated), {"gpu": "b200"})
    assert "older token line" in names(older)
    (reason,) = (reason for reason in older.reasons if reason.name == "older token line")
    assert f"{engine.kv_cache_tokens:,}" in reason.sentence


def test_tokens_of_a_plain_model_need_no_reason():
    assert names(found_in(started(pool(51.36), tokens(420_736), concurrency(12.84)))) == []


def test_the_reason_for_a_length_that_does_not_fit_says_what_it_needs():
    (reason,) = found_in(started(NO_ROOM, length=131_072), {"gpu": "a6000"}).reasons
    assert all(figure in reason.sentence for figure in ("131,072", "16 GiB", "9.94"))


EXPLAINED = {
    "log-57f2ee36": "GB are GiB",
    "log-8faca1a6": "other processes",
    "log-ea9d71ef": "per rank",
    "log-da902646": "smallest rank",
    "log-f6f861b9": "larger step",
    "log-cb562810": "unified memory",
    "log-bd0cb77d": "unified memory",
    "log-cadcd031": "padding",
    "log-e16309b5": "older token line",
    "log-c0e9e873": "older token line",
    "log-229991e2": "concurrency × length",
    "log-e476e11a": "does not fit",
    "log-af704a59": "does not fit",
}
"""Collected logs whose notes say why they surprised, and the name of that reason."""
NOTED = [row for row in READ if row["id"] in EXPLAINED]


@beside_logs
@pytest.mark.parametrize("row", NOTED, ids=[row["id"] for row in NOTED])
def test_a_collected_log_is_explained_as_its_note_says(row):
    """Public start-up logs as collected, each beside the plan that it was read as."""
    base = next(start.plan for start in accuracy.starts() if start.id == row["id"])
    assert EXPLAINED[row["id"]] in names(compare(parse_engine_log(rebuilt(row)), base=base))


# The calibrated plan


CALIBRATED = {
    "plain": (PLAIN, H100),
    "another pool": (started(weights(14.9889), pool(54.61), tokens(447_360)), H100),
    "several ranks": (started(weights(32.86), pool(32.96), model="meta-llama/Llama-3.1-70B", tp=4), H100),
    "all parts": (
        started(weights(64.38), peak(2.84), non_torch(0.27), graphs(1.14), pool(57.19), model=GPT_OSS, length=131_072),
        {"gpu": "h200"},
    ),
    "no pool": (started(weights(14.9889)), H100),
    "a pool of less than nothing": (started(weights(66.0), pool(-1.44)), H100),
    "a total": (started(free(78.6, 79.1), weights(14.9889), pool(54.61)), {}),
}


@pytest.mark.parametrize(("text", "changes"), CALIBRATED.values(), ids=CALIBRATED)
def test_the_calibrated_plan_has_what_was_measured(text, changes):
    found = found_in(text, changes)
    log, memory = found.log, evaluate(found.calibrated).memory
    measured = {"weight_bytes": log.weights_gib, "activation_bytes": log.activation_gib}
    for name, gib in measured.items():
        if gib is not None:
            assert getattr(memory, name) == pytest.approx(gib * GIB, abs=64)
    if log.available_kv_gib is not None:
        assert memory.pool_bytes == whole_bytes(max(0, log.available_kv_gib))
    if log.total_gib is not None:
        assert memory.total_bytes == whole_bytes(log.total_gib)
    rows = {row.figure: row for row in found.rows}
    if "KV cache tokens" in rows:
        assert evaluate(found.calibrated).engine.kv_cache_tokens == rows["KV cache tokens"].from_own_pool
    assert decode_link(encode_link(found.calibrated)) == (found.calibrated, [])
    assert decode_link(encode_link(found.calibrated, full=False)) == (found.calibrated, [])


def test_the_calibrated_plan_prints_the_logs_own_tokens_and_concurrency():
    found = found_in(started(weights(14.9889), pool(54.61), tokens(447_360), concurrency(13.65)))
    engine = evaluate(found.calibrated).engine
    assert (engine.kv_cache_tokens, round(engine.max_concurrency, 2)) == (447_360, 13.65)


@given(
    st.sampled_from(["llama-3.1-8b", "qwen3-8b", "gpt-oss-120b", "gemma-3-27b", "qwen3-next-80b-a3b", "deepseek-v3"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([2048, 8192, 32_768, 131_072]),
    st.integers(1, 20_000).map(lambda hundredths: hundredths / 100),
)
def test_a_log_of_a_plan_gives_the_plan_and_its_figures_back(model, tp, length, gib):
    plan = Plan(model=model, gpu="b300", tp=tp, context=length, engine_version="0.24.0", gpu_memory_utilization=0.9)
    engine = of_own_pool(plan, gib)
    lines = [pool(gib), tokens(engine.kv_cache_tokens), concurrency(engine.max_concurrency, length)]
    found = found_in(started(*lines, model=model, tp=tp, length=length, version="0.24.0"), {"gpu": "b300"})
    assert found.plan == plan
    for row in found.rows:
        if row.from_own_pool is not None:
            assert row.from_own_pool == pytest.approx(row.measured, abs=0.006)
    assert evaluate(found.calibrated).engine == engine
    unexpected = {"older token line", "smallest rank", "window reserve", "another layout"}
    assert not unexpected & {reason.name for reason in found.reasons if reason.figure == "KV cache tokens"}


# What a user sets


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": "0"}, "tp: Input should be greater than or equal to 1, got '0'"),
        ({"tp": "many"}, "got 'many'"),
        ({"colour": "red"}, "colour: no field of a plan"),
        ({"kv_dtype": "fp7"}, "got 'fp7'"),
        ({"gpu_memory_utilization": "1.5"}, "gpu_memory_utilization: "),
        ({"spec": "no model"}, "spec: "),
        ({"gpu": "h100-80gb"}, "gpu: no preset named 'h100-80gb'; nearest: "),
        ({"model": "zz"}, "model: no preset named 'zz'; nearest: "),
        ({"workload": "zz"}, "workload: no preset named 'zz'; nearest: "),
    ],
)
@pytest.mark.parametrize("text", ["", PLAIN])
def test_a_value_no_plan_can_have_is_named_with_its_rule(text, changes, said):
    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        found_in(text, changes)
    assert "\n" not in str(raised.value)


def test_lengths_of_a_family_may_be_set():
    assert found_in(PLAIN, {"workload": "auto", "output_mean": "100"}).plan.workload == "auto"


def test_all_bad_values_are_named_at_once():
    with pytest.raises(ValueError, match=r"colour: .*; .*tp: "):
        found_in(PLAIN, {"tp": "0", "colour": "red"})


def test_what_a_user_sets_beats_the_log():
    plan = found_in(PLAIN, {"tp": "2", "context": "4096", "kv_dtype": "fp8", "model": "qwen3-8b"}).plan
    assert (plan.tp, plan.context, plan.kv_dtype, plan.model) == (2, 4096, "fp8", "qwen3-8b")


# What a plan cannot hold, and what another plan had


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (pool(99_999_999), "kv_cache_memory_bytes"),
        (peak(9_999_999), "activation_gib"),
        (free(1, 9_999_999), "gpu_memory_gib"),
        (free(0, 0), "gpu_memory_gib"),
    ],
)
def test_a_size_no_plan_can_hold_is_left_out_and_named(line, field):
    found = found_in(started(line))
    assert getattr(found.calibrated, field) is None
    assert any(missing.startswith(f"{field}: the log's ") for missing in found.missing)


@pytest.mark.parametrize("dtype", ["nvfp4", "turboquant_3bit_nc"])
def test_a_cache_dtype_no_plan_has_is_the_models_own_and_named(dtype):
    log = parse_engine_log(started(pool(9)).replace("kv_cache_dtype=auto", f"kv_cache_dtype={dtype}"))
    found = compare(log, H100, Plan(kv_dtype="fp8"))
    assert (log.kv_cache_dtype, found.plan.kv_dtype) == (dtype, "auto")
    assert any(missing.startswith(f"kv_dtype: the log's {dtype} is left out: ") for missing in found.missing)


def test_settings_of_another_engine_do_not_come_in_from_the_plan_beside():
    beside = Plan(mem_fraction_static=0.5, gpu_memory_utilization=0.5, engine_version="0.7.0")
    of_vllm = compare(parse_engine_log(PLAIN), base=beside).plan
    assert of_vllm.mem_fraction_static is None
    of_sglang = compare(parse_engine_log(SGLANG), base=beside).plan
    assert (of_sglang.gpu_memory_utilization, of_sglang.engine_version) == (None, None)


def test_a_plan_calibrated_before_changes_no_prediction():
    log = parse_engine_log(started(weights(14.99), peak(3.5), non_torch(0.9), pool(50.0)))
    first = compare(log, base=Plan())
    again = compare(log, base=first.calibrated)
    assert again.rows == first.rows


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f249a1", "llama-3.1-8b"),
        ("/models/llama-3.1-8b.gguf", "llama-3.1-8b"),
        ("Qwen3-8B-Q4_K_M.gguf", "qwen3-8b"),
    ],
)
def test_a_preset_is_told_from_a_path(name, model):
    assert compare(parse_engine_log(started(pool(9), model=name))).plan.model == model


def test_fewer_tokens_than_concurrency_times_length_are_the_older_line():
    """vllm-project/vllm#40691: 290,864 tokens beside 33.04 requests of 32,768."""
    found = compare(parse_engine_log("\n".join((tokens(290_864), concurrency(33.04)))))
    assert names(found) == ["older token line"]
    assert names(compare(parse_engine_log("\n".join((tokens(1_082_800), concurrency(33.04)))))) == []


# Any log


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_any_log_can_be_compared(text):
    found = compare(parse_engine_log(text))
    assert found.plan == Plan.model_validate(found.plan.model_dump())
    assert found.calibrated == Plan.model_validate(found.calibrated.model_dump())
    assert json.dumps(to_dict(found), allow_nan=False)
    assert all(value for row in table(found.rows) for value in row.values())
    assert [row["Line"] for row in read_lines(found.log)] == sorted(line for line, _ in found.log.lines.values())


def test_figures_are_shown_with_separators_and_two_decimals():
    assert [figure_text(value) for value in (None, 1_048_576, 54.614, -1.05, 0)] == [
        "–", "1,048,576", "54.61", "-1.05", "0"
    ]  # fmt: skip


# The command line


def kvplan(*arguments, text="", cwd=ROOT):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kvplan", *arguments], cwd=cwd, input=text.encode(), capture_output=True
    )


def printed(*arguments, text=""):
    run = kvplan("log", *arguments, text=text)
    assert (run.returncode, run.stderr) == (0, b"")
    return run.stdout.decode()


@pytest.fixture
def log_file(tmp_path):
    path = tmp_path / "engine.log"
    path.write_text(PLAIN)
    return str(path)


def test_the_command_prints_what_was_read_with_its_prediction_and_the_calibrated_link(log_file):
    text = printed(log_file, "--set", "gpu=h100-sxm")
    assert text.startswith("vllm 0.11.0\n")
    assert "line      5  available_kv_gib = 51.36" in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("  KV cache tokens"))
    assert row[-4:] == ["420,736", "420,736", "420,736", "tokens"]
    link = text.splitlines()[-1].removeprefix("calibrated: ")
    assert decode_link(link) == (found_in(PLAIN).calibrated, [])


def test_the_command_reads_standard_input(log_file):
    assert printed("-", text=PLAIN) == printed(log_file)


def test_json_has_a_schema_and_every_part(log_file):
    found = json.loads(printed(log_file, "--json", "--set", "gpu=h100-sxm"))
    assert found == json.loads(json.dumps(to_dict(found_in(PLAIN))))
    assert (found["schema"], SCHEMA) == ("kvplan.log/1", "kvplan.log/1")
    assert found.keys() == {"schema", "version", "log", "plan", "calibrated", "rows", "reasons", "missing"}
    assert found["log"]["available_kv_gib"] == 51.36
    assert found["plan"]["gpu"] == "h100-sxm"


def test_a_failed_start_is_said_to_have_failed():
    text = printed("-", text=started(NO_ROOM))
    assert text.splitlines()[1].startswith("failed: To serve at least one request")


def test_a_file_without_a_start_is_no_error(tmp_path):
    path = tmp_path / "core.bin"
    path.write_bytes(bytes(range(256)) * 1000)
    assert "nothing of a start-up was found" in printed(str(path))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["no-such-file.log"], "no-such-file.log cannot be read"),
        ([str(ROOT)], "cannot be read"),
        ([], "FILE"),
        (["-", "--set", "tp=0"], "tp: Input should be greater than or equal to 1, got '0'"),
        (["-", "--set", "colour=red"], "colour: no field of a plan"),
        (["-", "--set", "tp"], "FIELD=VALUE"),
        (["-", "--hf-config", "no-such-file.json"], "no-such-file.json cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, named):
    run = kvplan("log", *arguments)
    assert (run.returncode, run.stdout) == (2, b"")
    (line,) = run.stderr.decode().splitlines()
    assert line.startswith("kvplan: ")
    assert named in line


# What a prediction cannot say


def test_a_plan_that_cannot_run_is_named_and_predicts_no_tokens():
    found = found_in(started(pool(34.4), tokens(272_784), tp=2), {"dcp": "4", "model": "qwen3-32b"})
    assert any(line.startswith("no prediction of tokens and blocks: dcp: must divide tp 2") for line in found.missing)
    rows = {row.figure: row for row in found.rows}
    assert (rows["KV cache tokens"].predicted, rows["KV cache tokens"].from_own_pool) == (None, None)


def test_engines_side_by_side_are_said_to_be_compared_one_by_one():
    text = started(weights(90.5), pool(30.0), model="deepseek-ai/DeepSeek-V3", arguments=", 'data_parallel_size': 8")
    found = found_in(text, {"gpu": "h200"})
    assert "data parallel" in names(found)
    assert any(line.startswith("dp: 8 engines side by side") for line in found.missing)


def test_a_pool_no_device_has_is_compared_with_nothing():
    found = found_in(started(pool(999_999_999_999_999_999), tokens(100)))
    assert all(row.from_own_pool is None for row in found.rows)


def test_without_a_known_model_measured_weights_change_no_prediction_either():
    log = parse_engine_log("\n".join((weights(20.0), pool(30.0), tokens(100_000))))
    first = compare(log, base=Plan())
    assert compare(log, base=first.calibrated).rows == first.rows


def test_ranks_that_are_all_known_leave_no_other_to_blame():
    lines = [f"(Worker_TP{rank} pid=4{rank}) {pool(gib)}" for rank, gib in enumerate((35.4, 34.4))]
    found = found_in(started(*lines, tokens(200_000), model="Qwen/Qwen3-32B", tp=2), H100)
    assert [reason.figure for reason in found.reasons if reason.name == "smallest rank"] == ["KV pool"]


def test_a_cut_text_says_so():
    text = "x" * (6 * 2**20) + "\n" + started(pool(30.0))
    assert any(line.startswith("the beginning: ") for line in found_in(text).missing)


@pytest.mark.parametrize("name", ["Meta Llama 3.1 8B Instruct", "Qwen3 8B", "Qwen/Qwen3-8B-GGUF"])
def test_names_as_gguf_files_have_them_are_presets(name):
    lines = (
        f"llama_model_loader: - kv   2:                               general.name str              = {name}",
        "llama_context: n_ctx         = 8192",
        "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16): 512.00 MiB, "
        "V (f16): 512.00 MiB",
    )
    found = compare(parse_engine_log("\n".join(lines)))
    assert found.plan.model in ("llama-3.1-8b", "qwen3-8b")
    assert found.plan.kv_dtype == "fp16"
    assert "given context" in names(found)


def test_utf_16_of_a_windows_shell_is_read():
    raw = started(pool(30.0)).replace("\n", "\r\n").encode("utf-16")
    assert parse_engine_log(decoded(raw)).available_kv_gib == 30.0
    assert decoded("grün".encode()) == "grün"
