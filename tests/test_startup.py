"""What an engine takes at start-up beside weights and cache: posted peaks, releases, overrides, and laws of all."""

from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import SPEC_METHODS, known_ids, known_plans

from kvplan import Plan, evaluate, load_preset, presets, startup
from kvplan.catalog import Setting, resolve, restarted
from kvplan.memory import static_pool
from kvplan.specs import ModelShape
from kvplan.startup_facts import POOL_BAND, RELEASES
from kvplan.units import GIB, ceil_div, whole_bytes
from kvplan.weights import weight_bytes_at

VERSIONS = ("0.6.4", "0.8.5", "0.9", "0.11.0", "0.16.9", "0.17", "0.18", "0.19.0", "0.20.9", "0.21", "0.32", None)
"""Versions around every boundary between two releases; None is the newest."""
NEW_FIELDS = {
    "engine_version": st.sampled_from(VERSIONS),
    "mem_fraction_static": st.none() | st.floats(0, 1),
    "non_torch_gib": st.none() | st.floats(0, 200),
    "cuda_graph_gib": st.none() | st.floats(0, 200),
    "enforce_eager": st.booleans(),
}
ENGINE_FIELDS = NEW_FIELDS | {"activation_gib": st.none(), "cuda_graph_gib": st.none(), "workspace_gib": st.none()}
"""The same with nothing set of what start-up takes but non-torch memory."""
BASE = load_preset("llama-3.1-8b", "model")
SMALL = ModelShape(hidden_size=1000, vocab_size=100_000)
"""A shape whose peak can be worked out by hand: 21,299,200 bytes of hidden states in a step of 8,192 tokens."""
EXPERTS = {"moe_intermediate_size": 500, "num_experts_per_tok": 8}
STEP = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}
H100 = {"gpu": "h100-sxm"} | STEP

versions = st.sampled_from(VERSIONS)
sequence_counts = st.integers(1, 2048) | st.integers(1, 2**20)
token_counts = st.integers(1, 32768) | st.integers(1, 2**24)
degrees = st.sampled_from((1, 2, 4, 8, 16)) | st.integers(1, 64)
shapes = st.builds(
    ModelShape,
    hidden_size=st.integers(1, 2**15),
    vocab_size=st.integers(1, 2**19),
    intermediate_size=st.integers(0, 2**17),
    moe_intermediate_size=st.integers(0, 2**14),
    num_experts_per_tok=st.integers(0, 32),
    quantized_experts=st.booleans(),
)


def ordered(values):
    return st.tuples(values, values).map(sorted)


def rows(origin, *values):
    """Parametrised rows whose ids name where the numbers come from."""
    return [pytest.param(*row, id=f"{origin}: {', '.join(map(str, row))}") for row in values]


def started(version="0.19.0", shape=SMALL, *, sequences=1024, tokens=8192, tp=1, layers=32, **plan_fields):
    """Start-up of a model of a shape on a device of 80 GiB, with the step's limits set in the plan as well."""
    plan = Plan(engine_version=version, tp=tp, max_num_seqs=sequences, max_num_batched_tokens=tokens, **plan_fields)
    model = BASE.model_copy(update={"shape": shape, "num_experts": shape.num_experts_per_tok if shape else 0})
    return startup.at_startup(plan, model, total_bytes=80 * GIB, sequences=sequences, tokens=tokens, layers=layers)


def peak(*positional, **named):
    return started(*positional, **named).activation_bytes


def startup_of(**plan_fields):
    return resolve(Plan(**plan_fields)).startup


def memory_of(**plan_fields):
    return evaluate(Plan(**plan_fields)).memory


def changed(plan, **values):
    """The plan with some fields replaced, validated again."""
    return Plan.model_validate(plan.model_dump() | values)


# Peaks as posted


@pytest.mark.parametrize(
    ("model", "fields", "posted_gib"),
    rows(
        "llm-d-benchmark, empirical vLLM 0.11 memory results on H100",
        ("llama-3.1-8b", {}, 4.76),
        ("llama-3.3-70b", {"weight_dtype": "fp8"}, 4.84),
        ("llama-3.3-70b", {"weight_dtype": "fp8", "tp": 2}, 4.84),
        ("qwen3-0.6b", {}, 5.56),
        ("qwen3-32b", {}, 5.64),
        ("qwen3-32b", {"tp": 2}, 5.64),
        ("gpt-oss-20b", {}, 7.38),
    ),
)
def test_the_activation_peak_of_vllm_0_11_is_the_posted_one(model, fields, posted_gib):
    found = startup_of(model=model, engine_version="0.11.0", **H100, **fields)
    assert found.activation_bytes / GIB == pytest.approx(posted_gib, abs=0.1)


@pytest.mark.parametrize(
    ("model", "fields", "posted_gib"),
    rows(
        "llm-d-planner #205, vLLM 0.19 on H100",
        ("llama-3.1-8b", {}, 1.89),
        ("llama-3.1-8b", {"tp": 4}, 1.89),
        ("qwen2.5-7b", {}, 2.21),
        ("gemma-2-2b", {}, 3.62),
        ("qwen3-30b-a3b", {}, 2.68),
        ("deepseek-v2-lite", {}, 1.93),
        ("qwen1.5-moe-a2.7b", {}, 2.47),
        ("mixtral-8x7b-v0.1", {"tp": 2}, 1.21),
    ),
)
def test_the_activation_peak_of_vllm_0_19_is_the_posted_one(model, fields, posted_gib):
    found = startup_of(model=model, engine_version="0.19.0", **H100, **fields)
    assert found.activation_bytes / GIB == pytest.approx(posted_gib, abs=0.1)


@pytest.mark.parametrize(
    ("model", "version", "context", "posted_gib"),
    [
        pytest.param("llama-3.1-8b", "0.6.4", 29_000, 2.99, id="vllm#10517, peak 17.98 less weights 14.99"),
        pytest.param("qwen2.5-1.5b", "0.7.0", 32_768, 2.02, id="a public log of V0 on a T4"),
        pytest.param("qwen2.5-7b", "0.8.5", 32_768, 4.35, id="a public log of V0 on a V100 32GB"),
    ],
)
def test_the_activation_peak_of_v0_is_that_of_a_step_as_long_as_the_context(model, version, context, posted_gib):
    found = startup_of(model=model, engine_version=version, context=context)
    assert found.activation_bytes / GIB == pytest.approx(posted_gib, abs=0.3)


def test_a_longer_context_leaves_v0_a_smaller_pool_until_it_chunks_prefill():
    """vllm#10517: Llama 3.1 8B on an RTX 3090 has 3.81 GiB at 20,000 tokens, 2.89 at 29,000, and starts at 35,000."""
    fields = {"gpu": "rtx3090", "gpu_memory_utilization": 0.9}
    pools = {
        (version, context): memory_of(engine_version=version, context=context, **fields).pool_bytes / GIB
        for version in ("0.6.4", "0.11.0")
        for context in (20_000, 29_000, 35_000, 45_000)
    }
    assert pools["0.6.4", 20_000] == pytest.approx(3.81, abs=0.3)
    assert pools["0.6.4", 29_000] == pytest.approx(2.89, abs=0.3)
    assert pools["0.6.4", 29_000] < pools["0.6.4", 20_000] < pools["0.6.4", 35_000] == pools["0.6.4", 45_000]
    assert len({pools["0.11.0", context] for context in (20_000, 29_000, 35_000, 45_000)}) == 1


def test_qwen3_14b_lost_three_gib_of_its_peak_between_0_16_and_0_17():
    """llm-d-planner #205, version sweep: 5.64, 5.64, 2.23, 2.23 GiB by 0.15 to 0.18."""
    posted = {"0.15.0": 5.64, "0.16.0": 5.64, "0.17.0": 2.23, "0.18.0": 2.23}
    found = {
        version: startup_of(model="qwen3-14b", engine_version=version, **H100).activation_bytes / GIB
        for version in posted
    }
    assert found == pytest.approx(posted, abs=0.1)


# Peaks by hand


@pytest.mark.parametrize(
    ("version", "shape", "fields", "expected"),
    [
        pytest.param("0.11", {}, {}, 3_922_739_200, id="worked example, sampling at 38.1 bytes a logit"),
        pytest.param("0.19", {}, {}, 1_506_099_200, id="worked example, sampling at 14.5 bytes a logit"),
        pytest.param("0.19", {}, {"tp": 8}, 1_506_099_200, id="worked example, sampling is not split over tp"),
        pytest.param("0.19", {}, {"tokens": 100}, 145_260_000, id="worked example, no more sequences than tokens"),
        pytest.param(
            "0.19",
            {"vocab_size": 1000, "intermediate_size": 100_000},
            {},
            4_985_651_200,
            id="worked example, a layer wider than its logits",
        ),
        pytest.param(
            "0.19",
            {"vocab_size": 1000, "intermediate_size": 100_000},
            {"tp": 4},
            1_299_251_200,
            id="worked example, a quarter of a wide layer",
        ),
        pytest.param("0.19", EXPERTS, {}, 1_768_243_200, id="worked example, experts beside sampling"),
        pytest.param("0.11", EXPERTS, {}, 3_922_739_200, id="worked example, experts below sampling"),
        pytest.param(
            "0.11",
            EXPERTS | {"num_experts_per_tok": 128},
            {},
            4_215_603_200,
            id="worked example, experts above sampling",
        ),
        pytest.param(
            "0.11", EXPERTS | {"num_experts_per_tok": 128, "quantized_experts": True}, {}, 3_922_739_200,
            id="worked example, experts in mxfp4",
        ),
    ],
)  # fmt: skip
def test_the_peak_is_hidden_states_and_the_larger_of_sampling_layer_and_experts(version, shape, fields, expected):
    assert peak(version, SMALL.model_copy(update=shape), **fields) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_an_encoder_of_images_adds_the_same_whatever_the_model(version):
    """vLLM 0.19, Gemma 3 and Mistral Small 3.1: 0.1 to 0.2 GiB above the rule for text alone."""
    gemma = load_preset("gemma-3-27b", "model")
    plan = Plan(engine_version=version)
    with_encoder, alone = (
        resolve(plan, gemma.model_copy(update={"multimodal": multimodal})).startup.activation_bytes
        for multimodal in (True, False)
    )
    assert with_encoder - alone == pytest.approx(0.15 * GIB, abs=1)


def test_a_model_of_unknown_widths_is_taken_for_a_typical_one_with_a_note():
    unknown = BASE.model_copy(update={"shape": None})
    setting = resolve(Plan(), unknown)
    assert setting.startup.activation_bytes == peak(None, ModelShape(hidden_size=5120, vocab_size=151_936))
    assert any(note.startswith("activation_gib: the widths of Llama 3.1 8B are not known") for note in setting.notes)
    assert not any(note.startswith("activation_gib") for note in resolve(Plan(activation_gib=1.0), unknown).notes)
    assert not any(note.startswith("activation_gib") for note in resolve(Plan()).notes)


@pytest.mark.parametrize(
    ("width", "tp", "elements"),
    [
        pytest.param(768, 1, 2048 + 2048, id="worked example, Qwen3 30B-A3B: the hidden states are wider"),
        pytest.param(4096, 1, 8192 + 4096, id="worked example, gate and up and their product are wider"),
        pytest.param(4096, 8, 2048 + 2048, id="worked example, an eighth of wide experts"),
        pytest.param(1500, 1, 3000 + 2048, id="worked example, gate and up are wider, their product is not"),
    ],
)
def test_routed_experts_need_two_buffers_for_each_chosen_expert_of_a_token(width, tp, elements):
    shape = ModelShape(hidden_size=2048, vocab_size=1, moe_intermediate_size=width, num_experts_per_tok=8)
    assert startup.expert_workspace_bytes(shape, tokens=8192, tp=tp) == 8192 * 8 * elements * 2


@given(shapes, token_counts, degrees)
def test_experts_stored_in_mxfp4_need_no_workspace_and_no_experts_need_none(shape, tokens, tp):
    """vLLM 0.11 and 0.19, gpt-oss 20B: its peak is that of its vocabulary alone."""
    packed = shape.model_copy(update={"quantized_experts": True})
    dense = shape.model_copy(update={"num_experts_per_tok": 0})
    assert startup.expert_workspace_bytes(packed, tokens=tokens, tp=tp) == 0
    assert startup.expert_workspace_bytes(dense, tokens=tokens, tp=tp) == 0


# Which release a version means


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ("0.0.1", (0, 0)),
        ("0.6.4.post1", (0, 0)),
        ("0.8.5", (0, 0)),
        ("0.9", (0, 9)),
        ("0.9.0", (0, 9)),
        ("v0.11.2", (0, 9)),
        ("0.16.9", (0, 9)),
        ("0.17", (0, 17)),
        ("0.17.1rc2", (0, 17)),
        ("0.18", (0, 18)),
        ("0.20.9", (0, 18)),
        ("0.21", (0, 21)),
        ("v0.29.1rc1.dev339", (0, 21)),
        ("0.100", (0, 21)),
        ("1.0", (0, 21)),
        (None, (0, 21)),
    ],
)
def test_a_version_means_the_last_release_that_is_not_newer(version, since):
    assert startup.release(version).since == since


def test_releases_stand_in_order_from_the_first_version_on():
    assert RELEASES[0].since == (0, 0)
    assert all(older.since < newer.since for older, newer in pairwise(RELEASES))


@pytest.mark.parametrize(
    ("version", "utilization"),
    [("0.6.4", 0.90), ("0.11.0", 0.90), ("0.20.9", 0.90), ("0.21", 0.92), ("0.32", 0.92), (None, 0.92)],
)
def test_the_engine_may_use_0_90_of_a_device_before_0_21_and_0_92_from_then_on(version, utilization):
    assert resolve(Plan(engine_version=version)).utilization == utilization
    assert resolve(Plan(engine_version=version, gpu_memory_utilization=0.5)).utilization == 0.5


@pytest.mark.parametrize(
    ("version", "alone", "parallel"),
    rows(
        "non-torch memory in public logs",
        ("0.7.2", 0.10, 0.50),
        ("0.11.0", 0.13, 0.55),
        ("0.17.0", 0.13, 0.55),
        ("0.19.0", 0.25, 2.10),
        ("0.31.0", 0.27, 1.70),
    ),
)
def test_memory_outside_pytorch_grows_with_a_second_device(version, alone, parallel):
    found = {tp: startup_of(engine_version=version, tp=tp).non_torch_bytes for tp in (1, 2, 8)}
    assert found == {1: whole_bytes(alone), 2: whole_bytes(parallel), 8: whole_bytes(parallel)}


@given(known_plans(**ENGINE_FIELDS))
def test_graphs_come_off_the_pool_only_from_0_21_on_and_never_where_execution_is_eager(plan):
    found = resolve(plan).startup
    newest = plan.engine_version in ("0.21", "0.32", None)
    assert (found.cuda_graph_bytes > 0) == (newest and not plan.enforce_eager)


@pytest.mark.parametrize(
    ("fields", "expected_gib"),
    [
        pytest.param({}, 0.78, id="worked example, 32 layers at all sizes: 0.3 and 32 times 0.015"),
        pytest.param({"layers": 64}, 1.26, id="worked example, 64 layers at all sizes"),
        pytest.param({"max_num_seqs": 8}, 0.3 + 0.48 * 5 / 51, id="worked example, 5 of 51 sizes"),
        pytest.param({"model": "mixtral-8x7b-v0.1"}, 1.08, id="worked example, 32 layers with experts"),
        pytest.param({"cuda_graph_gib": 3}, 3, id="worked example, given"),
        pytest.param({"cuda_graph_gib": 3, "enforce_eager": True}, 0, id="worked example, eager beats given"),
    ],
)
def test_graphs_take_a_base_and_a_share_for_each_layer_and_captured_size(fields, expected_gib):
    assert startup_of(**fields).cuda_graph_bytes == whole_bytes(expected_gib)


def is_captured(size):
    """vLLM's list of sizes: 1, 2, 4, multiples of 8 below 256 and of 16 from there to 512."""
    return size in (1, 2, 4) or size % (8 if size < 256 else 16) == 0


@given(st.integers(1, 300) | st.integers(1, 2**20))
def test_captured_sizes_are_those_up_to_twice_the_sequences(sequences):
    """Brute force over every size to 512."""
    expected = sum(is_captured(size) for size in range(1, 513) if size <= 2 * sequences)
    assert startup.captured_sizes(sequences) == expected
    assert 2 <= startup.captured_sizes(sequences) <= 51


# What a plan sets itself


@pytest.mark.parametrize(
    ("fields", "activation", "workspace", "parts"),
    [
        pytest.param({"activation_gib": 3}, 3, None, True, id="activation_gib"),
        pytest.param({"activation_gib": 0}, 0, None, True, id="activation_gib of nothing"),
        pytest.param({"non_torch_gib": 2, "cuda_graph_gib": 1}, None, 3, True, id="non_torch_gib and cuda_graph_gib"),
        pytest.param({"non_torch_gib": 2, "enforce_eager": True}, None, 2, True, id="non_torch_gib and enforce_eager"),
        pytest.param({"non_torch_gib": 2, "engine_version": "0.20"}, None, 2, True, id="non_torch_gib before 0.21"),
        pytest.param(
            {"cuda_graph_gib": 1, "engine_version": "0.20", "non_torch_gib": 0}, None, 1, True,
            id="cuda_graph_gib before 0.21",
        ),
        pytest.param({"workspace_gib": 5}, None, 5, False, id="workspace_gib"),
        pytest.param(
            {"workspace_gib": 5, "non_torch_gib": 2, "cuda_graph_gib": 1}, None, 5, False,
            id="workspace_gib beats both",
        ),
        pytest.param({"workspace_gib": 5, "enforce_eager": True}, None, 5, False, id="workspace_gib beats eager"),
        pytest.param({"workspace_gib": 0, "activation_gib": 1}, 1, 0, False, id="workspace_gib of nothing"),
    ],
)  # fmt: skip
def test_what_a_plan_sets_replaces_its_estimate_and_nothing_else(fields, activation, workspace, parts):
    found, estimated = startup_of(**fields), startup_of()
    memory = memory_of(**fields)
    assert found.activation_bytes == (estimated.activation_bytes if activation is None else activation * GIB)
    if workspace is not None:
        assert found.workspace_bytes == workspace * GIB
    assert (found.non_torch_bytes is not None, found.cuda_graph_bytes is not None) == (parts, parts)
    if parts:
        assert found.workspace_bytes == found.non_torch_bytes + found.cuda_graph_bytes
    assert (memory.activation_bytes, memory.workspace_bytes) == (found.activation_bytes, found.workspace_bytes)
    assert (memory.non_torch_bytes, memory.cuda_graph_bytes) == (found.non_torch_bytes, found.cuda_graph_bytes)


def test_parts_of_a_given_workspace_are_ignored_with_a_note():
    notes = resolve(Plan(workspace_gib=5, non_torch_gib=2, cuda_graph_gib=1)).notes
    assert [note for note in notes if "ignored" in note] == [
        "non_torch_gib: ignored, as workspace_gib is given",
        "cuda_graph_gib: ignored, as workspace_gib is given",
    ]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("activation_bytes", {"activation_gib": 1}, id="activation_gib"),
        pytest.param("workspace_bytes", {"workspace_gib": 1}, id="workspace_gib"),
        pytest.param("workspace_bytes", {"non_torch_gib": 1, "cuda_graph_gib": 1}, id="both parts of the workspace"),
        pytest.param("workspace_bytes", {"non_torch_gib": 1, "enforce_eager": True}, id="the only part of it"),
    ],
)
def test_what_a_plan_sets_is_its_own_number_and_what_it_leaves_open_an_estimate(name, fields):
    assert resolve(Plan()).sources[name].mark == "estimate"
    assert resolve(Plan(**fields)).sources[name].text == "set in this plan"


@pytest.mark.parametrize("fields", [{"non_torch_gib": 1}, {"cuda_graph_gib": 1}, {"enforce_eager": True}])
def test_a_workspace_of_which_a_part_is_estimated_is_an_estimate(fields):
    assert resolve(Plan(**fields)).sources["workspace_bytes"].mark == "estimate"


@pytest.mark.parametrize(
    ("fields", "estimated"),
    [
        pytest.param({}, True, id="everything"),
        pytest.param({"activation_gib": 5}, True, id="the workspace"),
        pytest.param({"workspace_gib": 1}, True, id="the activations"),
        pytest.param({"non_torch_gib": 1, "cuda_graph_gib": 1}, True, id="the activations, with both parts given"),
        pytest.param({"activation_gib": 5, "cuda_graph_gib": 1}, True, id="non-torch memory"),
        pytest.param({"activation_gib": 5, "non_torch_gib": 1}, True, id="CUDA graphs"),
        pytest.param({"mem_fraction_static": 0.9}, True, id="what SGLang leaves of a device"),
        pytest.param({"activation_gib": 5, "workspace_gib": 1}, False, id="nothing, sums given"),
        pytest.param({"activation_gib": 5, "non_torch_gib": 1, "cuda_graph_gib": 1}, False, id="nothing, parts given"),
        pytest.param({"activation_gib": 5, "non_torch_gib": 1, "enforce_eager": True}, False, id="nothing, no graphs"),
        pytest.param({"activation_gib": 5, "non_torch_gib": 1, "engine_version": "0.20"}, False, id="nothing, older"),
        pytest.param({"kv_cache_memory_bytes": 2**34}, False, id="nothing, a pool in bytes"),
        pytest.param({"kv_cache_memory_bytes": 2**34, "mem_fraction_static": 0.9}, False, id="nothing, both pools"),
    ],
)
def test_a_pool_has_a_band_where_something_it_is_the_rest_of_is_estimated(fields, estimated):
    memory = memory_of(**fields)
    assert memory.pool_band_bytes == (round(memory.total_bytes * POOL_BAND) if estimated else 0)


# Laws


@settings(max_examples=200)
@given(versions, shapes, ordered(sequence_counts), token_counts, degrees)
def test_the_peak_never_falls_with_more_sequences(version, shape, counts, tokens, tp):
    few, many = (peak(version, shape, sequences=number, tokens=tokens, tp=tp) for number in counts)
    assert few <= many


@settings(max_examples=200)
@given(versions, shapes, sequence_counts, ordered(token_counts), degrees)
def test_the_peak_never_falls_with_more_tokens_in_a_step(version, shape, sequences, counts, tp):
    few, many = (peak(version, shape, sequences=sequences, tokens=number, tp=tp) for number in counts)
    assert few <= many


@settings(max_examples=200)
@given(versions, shapes, sequence_counts, token_counts, degrees, ordered(st.integers(1, 2**20)))
@pytest.mark.parametrize("width", ["vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size"])
def test_the_peak_never_falls_with_a_wider_model(width, version, shape, sequences, tokens, tp, widths):
    narrow, wide = (
        peak(version, shape.model_copy(update={width: number}), sequences=sequences, tokens=tokens, tp=tp)
        for number in widths
    )
    assert narrow <= wide


@settings(max_examples=200)
@given(versions, shapes, sequence_counts, token_counts, ordered(degrees))
def test_the_peak_never_rises_with_tp_at_one_release(version, shape, sequences, tokens, tps):
    few, many = (peak(version, shape, sequences=sequences, tokens=tokens, tp=tp) for tp in tps)
    assert many <= few


@settings(max_examples=100)
@given(known_plans(**ENGINE_FIELDS), ordered(sequence_counts))
def test_no_plan_has_a_lower_peak_with_a_higher_limit_of_sequences(plan, counts):
    few, many = (resolve(changed(plan, max_num_seqs=number)).startup.activation_bytes for number in counts)
    assert 0 < few <= many


@settings(max_examples=100)
@given(known_plans(**ENGINE_FIELDS), ordered(token_counts))
def test_no_plan_has_a_lower_peak_with_a_higher_limit_of_tokens(plan, counts):
    few, many = (resolve(changed(plan, max_num_batched_tokens=number)).startup.activation_bytes for number in counts)
    assert 0 < few <= many


@settings(max_examples=100)
@given(known_plans(**ENGINE_FIELDS), ordered(degrees))
def test_no_plan_has_a_higher_peak_on_more_devices(plan, tps):
    few, many = (resolve(changed(plan, tp=tp)).startup.activation_bytes for tp in tps)
    assert many <= few


@settings(max_examples=150)
@given(known_plans(**NEW_FIELDS), degrees)
def test_a_setting_moved_to_another_tp_is_the_one_resolved_there(plan, tp):
    moved, resolved = restarted(resolve(plan), tp=tp), resolve(changed(plan, tp=tp))
    compared = {field.name for field in fields(Setting)} - {"lengths", "notes"}
    assert {name: getattr(moved, name) for name in compared} == {name: getattr(resolved, name) for name in compared}


@settings(max_examples=300)
@given(known_plans(**NEW_FIELDS))
def test_the_parts_of_any_plan_add_up_while_nothing_is_missing(plan):
    """Law of the breakdown: six parts are the total, exactly; else the pool is empty and the gap is named."""
    memory = evaluate(plan).memory
    parts = (
        memory.weight_bytes,
        memory.activation_bytes,
        memory.workspace_bytes,
        memory.overhead_bytes,
        memory.pool_bytes,
        memory.left_free_bytes,
    )
    assert min(parts[:-1]) >= 0
    assert min(memory.shortfall_bytes, memory.pool_band_bytes) >= 0
    if memory.shortfall_bytes:
        assert (memory.pool_bytes, memory.overhead_bytes) == (0, 0)
    else:
        assert sum(parts) == memory.total_bytes
    if memory.non_torch_bytes is not None:
        assert memory.non_torch_bytes + memory.cuda_graph_bytes == memory.workspace_bytes


# SGLang's pool


def test_sglangs_pool_is_its_share_of_what_is_free_less_the_weights():
    """sgl-project/sglang#24523: 17.94 of 138.17 GB available after loading, fraction 0.90: 4.13 GB are left."""
    pool = static_pool(
        total_bytes=whole_bytes(138.17),
        fraction=0.90,
        weight_bytes=whole_bytes(138.17 - 17.94),
        non_torch_bytes=0,
    )
    assert pool / GIB == pytest.approx(4.13, abs=0.01)


def test_sglangs_pool_of_qwen3_235b_in_fp8_on_four_h100_is_the_posted_one():
    """vllm#21348: keys and values of 8.23 GB each a device at mem_fraction_static 0.93, GB there being 2^30."""
    plan = Plan(model="qwen3-235b-a22b-fp8", gpu="h100-sxm", tp=4, mem_fraction_static=0.93)
    memory = evaluate(plan).memory
    assert memory.pool_bytes / GIB == pytest.approx(16.46, abs=1)
    assert memory.pool_bytes > 1.5 * memory_of(model="qwen3-235b-a22b-fp8", tp=4, engine_version="0.9.2").pool_bytes


def test_sglangs_pool_by_hand():
    """Worked example: 80 GiB less 2 outside PyTorch, half of it, less 16 of weights; activations change nothing."""
    fields = {"gpu_memory_gib": 80, "weights_gib": 16, "non_torch_gib": 2, "mem_fraction_static": 0.5}
    for activation_gib in (0, 5, 20):
        memory = memory_of(**fields, activation_gib=activation_gib, cuda_graph_gib=1)
        assert memory.pool_bytes == 23 * GIB
        assert memory.left_free_bytes == (80 - 16 - 2 - 1 - activation_gib - 23) * GIB
        assert memory.shortfall_bytes == 0


def test_weights_above_sglangs_share_leave_no_pool_and_name_the_gap():
    """Worked example: 45 GiB of weights in a half of 80 less 2."""
    memory = memory_of(gpu_memory_gib=80, weights_gib=45, non_torch_gib=2, mem_fraction_static=0.5)
    assert (memory.pool_bytes, memory.shortfall_bytes) == (0, 6 * GIB)


def test_sglangs_fraction_replaces_utilization_with_a_note_and_yields_to_a_pool_in_bytes():
    alone, both = (memory_of(mem_fraction_static=0.8, **extra) for extra in ({}, {"gpu_memory_utilization": 0.3}))
    assert alone.pool_bytes == both.pool_bytes > 0
    notes = resolve(Plan(mem_fraction_static=0.8, gpu_memory_utilization=0.3)).notes
    assert "gpu_memory_utilization: ignored, as mem_fraction_static is given" in notes
    assert memory_of(mem_fraction_static=0.8, kv_cache_memory_bytes=7 * GIB).pool_bytes == 7 * GIB


@settings(max_examples=150)
@given(known_plans(**NEW_FIELDS, kv_cache_memory_bytes=st.none()), ordered(st.floats(0, 1)))
def test_sglangs_pool_is_never_negative_and_never_falls_when_its_fraction_grows(plan, fractions):
    small, large = (evaluate(changed(plan, mem_fraction_static=fraction)).memory for fraction in fractions)
    assert 0 <= small.pool_bytes <= large.pool_bytes
    assert all(not memory.shortfall_bytes or not memory.pool_bytes for memory in (small, large))


# Weights as loaded


@pytest.mark.parametrize(
    ("model", "dtype", "counted_gib", "posted_gib"),
    [
        pytest.param("llama-3.3-70b", "fp8", 67.67, 67.72, id="llm-d-benchmark, RedHatAI Llama-3.3-70B-FP8-dynamic"),
        pytest.param("llama-3.1-8b", "int4", 5.33, 5.38, id="llm-d-planner #205, RedHatAI Llama-3.1-8B w4a16"),
        pytest.param("llama-3.1-8b", "int8", 8.46, 8.49, id="llm-d-planner #205, RedHatAI Llama-3.1-8B w8a8"),
        pytest.param("qwen2.5-7b", "fp8", 8.11, 8.14, id="llm-d-planner #205, RedHatAI Qwen2.5-7B-fp8-dynamic"),
        pytest.param("phi-4", "int4", None, 8.51, id="a public log, Phi-4-AutoRound-GPTQ-4bit"),
    ],
)
def test_quantised_weights_are_as_large_as_an_engine_posted(model, dtype, counted_gib, posted_gib):
    spec = load_preset(model, "model")
    counted = weight_bytes_at(dtype, spec.parameters, spec.unquantized_parameters) / GIB
    assert counted == pytest.approx(posted_gib, abs=0.1)
    if counted_gib is not None:
        assert counted == pytest.approx(counted_gib, abs=0.006)
    assert memory_of(model=model, weight_dtype=dtype).weight_bytes == pytest.approx(counted * GIB, abs=1)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        pytest.param("fp32", 4000, id="worked example, four bytes for each of 1,000"),
        pytest.param("bf16", 2000, id="worked example, two bytes for each of 1,000"),
        pytest.param("fp16", 2000, id="worked example, two bytes for each of 1,000 in fp16"),
        pytest.param("fp8", 1200, id="worked example, 800 bytes and 200 of two"),
        pytest.param("int8", 1200, id="worked example, 800 bytes and 200 of two in int8"),
        pytest.param("int4", 816, id="worked example, 800 of 4.15625 bits and 200 of two bytes"),
    ],
)
def test_below_16_bits_what_a_checkpoint_spares_stays_in_16(dtype, expected):
    assert weight_bytes_at(dtype, 1000, 200) == expected


@given(st.integers(1, 2**42), st.floats(0, 1))
def test_narrower_weights_are_never_larger(parameters, share):
    spared = int(parameters * share)
    sizes = [weight_bytes_at(dtype, parameters, spared) for dtype in ("int4", "int8", "bf16", "fp32")]
    assert sizes == sorted(sizes)
    assert weight_bytes_at("bf16", parameters, spared) == 2 * parameters
    assert weight_bytes_at("int4", parameters, parameters) == 2 * parameters


LOADED_OTHERWISE = [name for name in presets("model") if load_preset(name, "model").loaded_weight_bytes]


@pytest.mark.parametrize("name", LOADED_OTHERWISE)
def test_weights_are_those_an_engine_loads_and_all_that_was_released_where_it_drafts_with_mtp(name):
    spec = load_preset(name, "model")
    methods = {method: resolve(Plan(model=name, spec_method=method)) for method in (None, *SPEC_METHODS)}
    found = {method: setting.weight_bytes for method, setting in methods.items()}
    assert found == dict.fromkeys(found, spec.loaded_weight_bytes) | {
        "mtp": max(spec.loaded_weight_bytes, spec.weight_bytes)
    }
    for method, setting in methods.items():
        more_released = method == "mtp" and spec.weight_bytes > spec.loaded_weight_bytes
        origin = "weight_bytes" if more_released else "loaded_weight_bytes"
        assert setting.sources["weight_bytes"] == spec.sources[origin]


def test_there_are_models_whose_loaded_weights_are_known_to_differ():
    assert {"deepseek-v3", "gpt-oss-20b", "qwen3-0.6b"} <= set(LOADED_OTHERWISE)


@given(known_ids("model"), degrees, st.sampled_from((1, 2, 3, 4)))
def test_each_device_holds_its_share_of_the_loaded_weights(name, tp, pp):
    spec = load_preset(name, "model")
    assume(spec.weight_bytes)
    loaded = spec.loaded_weight_bytes or spec.weight_bytes
    assert memory_of(model=name, tp=tp, pp=pp).weight_bytes == ceil_div(loaded, tp * pp)


@pytest.mark.parametrize("dtype", ["int4", "int8", "fp8", "bf16"])
@pytest.mark.parametrize("name", ["gemma-3-27b", "mistral-small-3.2-24b-instruct-2506", "gemma-3-4b"])
def test_an_encoder_stays_in_16_bits_at_every_width_of_the_weights(name, dtype):
    spec = load_preset(name, "model")
    encoder = (spec.loaded_weight_bytes or spec.weight_bytes) - 2 * spec.parameters
    assert encoder > 0
    text = weight_bytes_at(dtype, spec.parameters, spec.unquantized_parameters)
    assert resolve(Plan(model=name, weight_dtype=dtype)).weight_bytes == text + encoder


@pytest.mark.parametrize(
    ("tp", "posted_gib"),
    [
        pytest.param(1, 24.07, id="llm-d-planner #205, Mistral Small 3.1 w8a8 on one device"),
        pytest.param(2, 12.11, id="llm-d-planner #205, Mistral Small 3.1 w8a8 on each of two"),
    ],
)
def test_a_quantised_model_with_an_encoder_is_as_large_as_an_engine_posted(tp, posted_gib):
    fields = {"model": "mistral-small-3.2-24b-instruct-2506", "weight_dtype": "int8", "tp": tp}
    assert memory_of(**fields).weight_bytes / GIB == pytest.approx(posted_gib, abs=0.15)


@pytest.mark.parametrize("dtype", [None, "bf16", "int4"])
def test_layers_that_draft_are_loaded_at_every_width_of_the_weights(dtype):
    spec = load_preset("deepseek-v3", "model")
    plain, drafting = (
        resolve(Plan(model="deepseek-v3", weight_dtype=dtype, spec_method=method)).weight_bytes
        for method in (None, "mtp")
    )
    assert drafting / plain == pytest.approx(spec.weight_bytes / spec.loaded_weight_bytes, rel=1e-9)


def test_a_build_without_a_tag_is_as_new_as_any():
    assert startup.release("0.1.dev20073+g8e685d198") == startup.release(None)
    assert startup.release("0.1.0") == startup.release("0.5.0")


@pytest.mark.parametrize(
    ("fields", "has_band"),
    [
        ({}, True),
        ({"non_torch_gib": 1}, False),
        ({"workspace_gib": 1}, False),
        ({"activation_gib": 1}, True),
    ],
)
def test_the_pool_of_sglang_has_a_band_only_where_non_torch_memory_is_estimated(fields, has_band):
    assert (memory_of(mem_fraction_static=0.85, **fields).pool_band_bytes > 0) is has_band
