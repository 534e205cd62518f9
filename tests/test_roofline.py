"""The time of a step: bytes and FLOP by hand, the table of parameters, and what must hold of every plan."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import SERVED, known_plans
from test_facts import MODELS, beside_facts, each_model, preset_id

from kvplan import Plan, load_preset
from kvplan.catalog import resolve
from kvplan.engine import layout
from kvplan.roofline import Reach, StepParts, accepted_tokens, remembered, step_time, work
from kvplan.roofline_facts import COLLECTIVE_S, collective_s, efficiency, math_rate

LLAMA_8B, TABLE_8B = 8_030_261_248, 128_256 * 4_096
"""Parameters of Llama 3.1 8B and of each of its two tables, in and out."""
SPARED_8B = 2 * TABLE_8B + 65 * 4_096
"""Of these, what a quantised checkpoint leaves in 16 bits: both tables, two norms a layer and the last."""
MATRICES_8B = LLAMA_8B - SPARED_8B
MIXTRAL, MIXTRAL_EXPERTS = 46_702_792_704, 32 * 8 * 3 * 4_096 * 14_336
GPT_OSS, GPT_OSS_EXPERTS = 116_829_156_672, 36 * 128 * (3 * 2_880 * 2_880 + 3 * 2_880)
DEEPSEEK, DEEPSEEK_EXPERTS = 671_026_419_200, 58 * 256 * 3 * 7_168 * 2_048
ONE_CUT = 1 + 1e-9
"""A law holds but for the last digits of a float."""


def work_of(**fields):
    return work(resolve(Plan(**fields)))


def step_of(attended=500.0, **fields):
    return step_time(resolve(Plan(**fields)), attended)


def all_weights(found):
    return found.weight_bytes + found.expert_bytes


# Weights


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "llama-3.1-8b"}, 2 * (LLAMA_8B - TABLE_8B)),
        ({"model": "llama-3.1-8b", "tp": 8}, (LLAMA_8B - TABLE_8B) / 4),
        ({"model": "llama-3.1-8b", "pp": 2}, 2 * (LLAMA_8B - TABLE_8B)),
        ({"model": "llama-3.1-8b", "weight_dtype": "fp32"}, 4 * (LLAMA_8B - TABLE_8B)),
        ({"model": "llama-2-70b"}, 2 * (68_976_648_192 - 32_000 * 8_192)),
        ({"model": "llama-3.2-1b"}, 2 * 1_235_814_400),  # tied
        ({"model": "gemma-7b"}, 2 * 8_537_680_896),  # tied
        ({"model": "gemma-2-9b", "tp": 2}, 9_241_705_984),  # tied
    ],
)
def test_a_step_reads_every_weight_once_but_a_table_that_is_looked_up(fields, expected):
    """facts/models.json: parameters. A tied table is read once, as the head."""
    found = work_of(**fields)
    assert found.expert_bytes == 0
    assert found.weights_read(1) == found.weights_read(500) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("fp8", 8), ("int8", 8), ("int4", 4 + 20 / 128), ("nvfp4", 4.5), ("mxfp4", 4.25)],
)
def test_quantised_weights_are_read_at_their_width_and_the_head_and_norms_at_16_bits(dtype, bits):
    """The input table of 16 bits is not read: in fp8 6,979,321,856 + 2 x (525,336,576 + 266,240) bytes."""
    expected = MATRICES_8B * bits / 8 + 2 * (SPARED_8B - TABLE_8B)
    assert work_of(weight_dtype=dtype).weight_bytes == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", ["fp8", "int4", "nvfp4"])
@pytest.mark.parametrize("model", ["llama-3.3-70b", "qwen3-8b", "mixtral-8x7b-v0.1", "phi-4", "gemma-2-9b", "qwen2-7b"])
def test_what_a_quantised_model_reads_is_what_it_weighs_less_its_looked_up_table_in_16_bits(model, dtype):
    setting = resolve(Plan(model=model, weight_dtype=dtype))
    looked_up = setting.model.input_embedding_parameters or 0
    assert all_weights(work(setting)) == pytest.approx(setting.weight_bytes - 2 * looked_up, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "size", "read"),
    [
        ("gpt-oss-120b", 69_127_498_629, 69_127_498_629 - 2 * 201_088 * 2_880),
        ("deepseek-v3", 673_150_575_280, 673_150_575_280 - 2 * 129_280 * 7_168),
    ],
)
def test_a_quantised_release_reads_what_it_weighs_less_its_table(model, size, read):
    setting = resolve(Plan(model=model))
    assert setting.weight_bytes == size
    assert all_weights(work(setting)) == pytest.approx(read, rel=1e-9)


def test_only_the_experts_of_gpt_oss_are_narrow():
    found = work_of(model="gpt-oss-120b")
    rest = 2 * (GPT_OSS - GPT_OSS_EXPERTS - 201_088 * 2_880)
    assert found.weight_bytes == pytest.approx(rest, rel=1e-9)
    assert found.expert_bytes == pytest.approx(69_127_498_629 - 2 * (GPT_OSS - GPT_OSS_EXPERTS), rel=1e-9)


@beside_facts
@pytest.mark.parametrize(
    "fact",
    [fact for fact in MODELS if load_preset(preset_id(fact), "model").weight_dtype is None],
    ids=lambda fact: preset_id(fact),
)
def test_one_token_reads_two_bytes_of_each_active_parameter_of_a_model_in_16_bits(fact):
    """facts/models.json: active_params_excl_input_embedding, of the text stack."""
    found = work_of(model=preset_id(fact))
    assert found.weights_read(1) == pytest.approx(2 * fact["active_params_excl_input_embedding"], rel=2e-4)


@pytest.mark.parametrize(("batch", "share"), [(1, 8 / 256), (8, 0.22), (32, 0.64), (64, 0.87), (128, 0.98)])
def test_a_batch_touches_experts_as_under_even_independent_routing(batch, share):
    """facts/roofline.md: 256 experts, 8 a token."""
    found = work_of(model="deepseek-v3")
    touched = (found.weights_read(batch) - found.weight_bytes) / found.expert_bytes
    assert touched == pytest.approx(1 - (1 - 8 / 256) ** batch)
    assert round(touched, 2) == round(share, 2)


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("batch", [1, 2, 16])
def test_mixtral_reads_its_shared_part_and_the_experts_touched(batch, tp):
    """Worked: at one token 2 of 8 experts, 2 x (1,474,564,096 + 45,097,156,608 / 4) bytes."""
    shared = MIXTRAL - MIXTRAL_EXPERTS - 32_000 * 4_096
    expected = 2 * (shared + MIXTRAL_EXPERTS * (1 - 0.75**batch)) / tp
    assert work_of(model="mixtral-8x7b-v0.1", tp=tp).weights_read(batch) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "experts", "share"),
    [
        ("mixtral-8x7b-v0.1", MIXTRAL_EXPERTS, 2 / 8),
        ("gpt-oss-120b", GPT_OSS_EXPERTS, 4 / 128),
        ("deepseek-v3", DEEPSEEK_EXPERTS, 8 / 256),
        ("llama-3.1-8b", 0, 1.0),
    ],
)
def test_the_experts_of_a_model_and_the_share_a_token_passes(model, experts, share):
    assert (load_preset(model, "model").expert_parameters or 0) == experts
    assert work_of(model=model).expert_share == share


def test_weights_given_in_gib_are_what_is_read_but_for_the_table():
    """16 bits or more are spread evenly: 20 GiB of which 525,336,576 / 8,030,261,248 are looked up."""
    found = work_of(weights_gib=20)
    assert found.weight_bytes == pytest.approx(20 * 2**30 * (1 - TABLE_8B / LLAMA_8B), rel=1e-9)


# FLOP


@pytest.mark.parametrize(
    ("fields", "body", "head", "attention"),
    [
        # 4 x 32 layers x 32 heads x 128 for each token attended to
        ({}, 2 * (LLAMA_8B - 2 * TABLE_8B), 2 * TABLE_8B, 524_288),
        ({"tp": 4}, (LLAMA_8B - 2 * TABLE_8B) / 2, TABLE_8B / 2, 131_072),
        ({"tp": 16}, (LLAMA_8B - 2 * TABLE_8B) / 8, TABLE_8B / 8, 32_768),  # heads of queries, not of keys
        ({"model": "llama-3.2-1b"}, 2 * (1_235_814_400 - 128_256 * 2_048), 2 * 128_256 * 2_048, 4 * 16 * 32 * 64),
        (
            {"model": "mixtral-8x7b-v0.1"},
            2 * (MIXTRAL - 2 * 131_072_000 - MIXTRAL_EXPERTS * 6 // 8),
            2 * 131_072_000,
            524_288,
        ),
        (
            {"model": "deepseek-v3"},  # in decoding on the latent: 512 + 64 as a key, 512 as a value
            2 * (DEEPSEEK - 2 * 129_280 * 7_168 - DEEPSEEK_EXPERTS * 31 // 32),
            2 * 129_280 * 7_168,
            2 * 61 * 128 * (576 + 512),
        ),
    ],
)
def test_flop_of_a_token_are_two_for_each_parameter_it_passes_and_four_for_each_element_it_attends_to(
    fields, body, head, attention
):
    found = work_of(**fields)
    assert found.body_flop == pytest.approx(body, rel=1e-12)
    assert found.head_flop == pytest.approx(head, rel=1e-12)
    assert found.decode_attention(1) == pytest.approx(attention)


@each_model
def test_flop_of_a_token_are_two_for_each_active_parameter_of_the_table(fact):
    """facts/models.json: active_params_excl_input_embedding."""
    active = fact["active_params_excl_input_embedding"]
    for tp in (1, 8):
        found = work_of(model=preset_id(fact), tp=tp)
        assert (found.body_flop + found.head_flop) / 2 * tp == active


def test_a_prefill_of_mla_works_on_the_keys_and_values_it_unpacks():
    """DeepSeek-V3: 128 + 64 as a key and 128 as a value of each head."""
    assert work_of(model="deepseek-v3").prefill_attention(1) == 2 * 61 * 128 * (192 + 128)
    assert work_of().prefill_attention(1) == work_of().decode_attention(1)


@pytest.mark.parametrize(
    ("model", "tokens", "parameters", "width"),
    [
        ("llama-2-7b", 49_400, 6_476_271_616, 32 * 4_096),
        ("llama-2-70b", 104_450, 68_452_360_192, 80 * 8_192),
    ],
)
def test_attention_of_a_prefill_takes_as_much_as_its_matrices_at_so_many_tokens(model, tokens, parameters, width):
    """facts/roofline.md: n = P_body / (L H d), about 49k tokens for 7B and 104k for 70B."""
    found = work_of(model=model)
    assert found.body_flop == 2 * parameters
    n = parameters / width
    assert n == pytest.approx(tokens, rel=1e-3)
    assert found.prefill_attention(n / 2) == pytest.approx(found.body_flop)


def test_sliding_layers_of_a_prefill_cost_n_w_and_full_ones_half_of_n_squared():
    """Gemma 3 27B: 52 layers of 1,024 tokens and 10 of all, 32 heads of 128: 4 x 32 x 128 = 16,384 FLOP each."""
    found, n = work_of(model="gemma-3-27b"), 1_000_000
    assert n * found.prefill_attention(n / 2) == pytest.approx(16_384 * (52 * n * 1_024 + 10 * n * n / 2), rel=1e-3)
    assert found.prefill_attention(500) == pytest.approx(16_384 * 62 * 500)  # shorter than the window


@pytest.mark.parametrize(
    ("model", "tokens", "windows", "fine", "coarse", "topk"),
    [
        ("deepseek-v4-flash", 100_000, 43, 21, 20, 512),
        ("deepseek-v4-flash", 1_000, 43, 21, 20, 512),
        ("deepseek-v4-pro", 500_000, 61, 30, 31, 1_024),
    ],
)
def test_deepseek_v4_attends_to_a_window_and_to_entries_of_all_tokens_or_the_best(
    model, tokens, windows, fine, coarse, topk
):
    """Entries of 512, of which 64 carry positions: a window of 128 in every layer, n / 4 of which an indexer lets
    through some, and n / 128."""
    heads = load_preset(model, "model").num_attention_heads
    entries = windows * 128 + fine * min(tokens / 4, topk) + coarse * tokens / 128
    assert work_of(model=model).decode_attention(tokens) == pytest.approx(2 * heads * 960 * entries, rel=1e-9)


@given(st.floats(0.5, 1e6), st.floats(1, 1e6) | st.just(math.inf))
def test_the_mean_over_a_prompt_is_that_of_its_tokens(attended, limit):
    """Against a sum over a fine grid of tokens attending to 0 to 2 x attended others."""
    reach, points = Reach(limit, 3.0), 2_000
    plain = sum(reach.over(2 * attended * (place + 0.5) / points) for place in range(points)) / points
    assert reach.over_prompt(attended) == pytest.approx(plain, rel=1e-3)


# Cache


@pytest.mark.parametrize(
    ("fields", "tokens", "expected"),
    [
        ({}, 4_096, 4_096 * 131_072),  # 2 x 32 layers x 8 heads x 128 x 2 bytes
        ({"tp": 2}, 4_096, 4_096 * 65_536),
        ({"tp": 8}, 4_096, 4_096 * 16_384),
        ({"tp": 16}, 4_096, 4_096 * 16_384),  # the heads have run out
        ({"kv_dtype": "fp8"}, 4_096, 4_096 * 65_536),
        ({"pp": 4}, 4_096, 4_096 * 131_072),  # a token meets all stages
        ({"tp": 16, "dcp": 2}, 4_096, 4_096 * 8_192),
        ({"model": "falcon-7b"}, 1_000, 1_000 * 2 * 32 * 64 * 2),  # one head
        ({"model": "falcon-7b", "tp": 4}, 1_000, 1_000 * 2 * 32 * 64 * 2),
        ({"model": "deepseek-v3"}, 1_000, 1_000 * 61 * 576 * 2),
        ({"model": "deepseek-v3", "tp": 8}, 1_000, 1_000 * 61 * 576 * 2),  # the latent is not divided
        ({"model": "deepseek-v3", "tp": 8, "dcp": 8}, 1_000, 1_000 * 61 * 576 * 2 / 8),
        ({"model": "gemma-3-27b"}, 8_192, 8_192 * (52 * 1_024 + 10 * 8_192)),  # 2 x 16 x 128 x 2 a layer
        ({"model": "gemma-3-27b"}, 1_000, 8_192 * 62 * 1_000),
        ({"model": "gemma-3-27b", "tp": 32, "dcp": 2}, 8_192, 512 * (52 * 1_024 + 10 * 8_192 / 2)),
        ({"model": "gpt-oss-120b"}, 5_000, 2_048 * 18 * (128 + 5_000)),  # 2 x 8 x 64 x 2 a layer
        ({"model": "llama-4-scout-17b-16e"}, 20_000, 4_096 * (36 * 8_192 + 12 * 20_000)),  # the current chunk
        # a latent of the 2,048 best tokens, and the indexer's keys of all: 128 + 4 bytes
        ({"model": "deepseek-v3.2"}, 10_000, 61 * (1_152 * 2_048 + 132 * 10_000)),
        ({"model": "deepseek-v3.2"}, 1_000, 61 * (1_152 + 132) * 1_000),
        ({"model": "deepseek-v3.2", "tp": 8, "dcp": 2}, 10_000, 61 * (1_152 * 2_048 + 132 * 10_000) / 2),
    ],
)
def test_decoding_a_token_reads_what_its_layers_attend_to(fields, tokens, expected):
    found = work_of(**fields)
    assert found.state_bytes == 0
    assert found.cache_read(tokens) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "states", "per_token"),
    [
        # 36 layers: 3 rows of 8,192 and 524,288 elements; 12 layers of 2 heads of 256
        ({"model": "qwen3-next-80b-a3b"}, 36 * (3 * 8_192 + 524_288) * 2, 24_576),
        ({"model": "qwen3-next-80b-a3b", "tp": 2}, 18 * (3 * 8_192 + 524_288) * 2, 12_288),
        ({"model": "qwen3-next-80b-a3b", "mamba_ssm_cache_dtype": "fp32"}, 36 * (3 * 16_384 + 524_288 * 4), 24_576),
        ({"model": "falcon-mamba-7b"}, 64 * (3 * 8_192 + 131_072) * 2, 0),
        # 54 layers: 3 rows of 20,480 in 16 bits and 4,194,304 elements in 32; 10 layers of 8 heads of 128
        ({"model": "nemotron-h-56b-base-8k"}, 54 * (3 * 20_480 * 2 + 4_194_304 * 4), 40_960),
    ],
)
def test_states_are_read_and_written_whole_whatever_the_length(fields, states, per_token):
    found = work_of(**fields)
    assert found.cache_read(0) == found.state_bytes == 2 * states
    assert found.cache_read(1_000) == 2 * states + 1_000 * per_token


def test_a_draft_is_read_for_each_token_it_drafts_and_not_without_any():
    """EAGLE-3 on Llama 3.1 8B: a layer of 4,096 bytes a token."""
    for drafted in (1, 3, 0):
        found = work_of(spec_method="eagle3", spec_tokens=drafted)
        assert found.cache_read(1_000) == 1_000 * (131_072 + drafted * 4_096)


def test_a_draft_reads_the_head_and_its_layer_for_each_token():
    found = work_of(spec_method="eagle3", spec_tokens=3)
    layer = 2 * (LLAMA_8B - 2 * TABLE_8B) / 32
    assert found.draft_bytes == pytest.approx(2 * TABLE_8B + layer, rel=1e-9)
    assert work_of(spec_method="ngram", spec_tokens=3).draft_bytes == 0


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-next-80b-a3b", "glm-4.5-air"])
def test_drafting_does_not_change_what_the_model_itself_reads(model):
    plain, drafting = work_of(model=model), work_of(model=model, spec_method="mtp", spec_tokens=1)
    assert drafting.draft_bytes > 0
    assert all_weights(drafting) == pytest.approx(all_weights(plain), rel=1e-6)


# All-reduces


@pytest.mark.parametrize(
    ("gpu", "tp", "latency_s", "rate"),
    [
        ("a100-80-sxm", 2, 17e-6, 0.7 * 300e9),
        ("a100-80-sxm", 4, 21e-6, 0.7 * 300e9),
        ("h100-sxm", 8, 28e-6, 0.7 * 450e9),
        ("h100-sxm", 3, 21e-6, 0.7 * 450e9),  # as of 4
        ("l40s", 2, 17e-6, 0.7 * 32e9),
        ("h100-sxm", 16, 280e-6, 0.7 * 50e9),  # across nodes
        ("a100-80-sxm", 16, 280e-6, 0.7 * 25e9),
    ],
)
def test_an_all_reduce_takes_its_latency_and_its_message_over_a_ring(gpu, tp, latency_s, rate):
    """facts/roofline.md: alpha + 2 (p - 1) / p x message / rate."""
    found = collective_s(load_preset(gpu, "gpu"), tp)
    assert found == (latency_s, pytest.approx(2 * (tp - 1) / tp / rate))


def test_one_device_reduces_nothing():
    assert collective_s(load_preset("h100-sxm", "gpu"), 1) == (0, 0)
    assert work_of().collectives == 0
    assert step_of().parts(512, 64, 100_000).reducing_s == 0


def test_the_all_reduces_of_a_70b_step_of_64_take_their_latency_160_times():
    """facts/roofline.md: a message of 1 MiB, two a layer of 80."""
    parts = step_of(model="llama-2-70b", gpu="a100-80-sxm", tp=8).parts(0, 64, 64_000)
    assert work_of(model="llama-2-70b", tp=8).reduced_bytes * 64 == 2**20
    assert parts.reducing_s == pytest.approx(160 * (COLLECTIVE_S[8].value + 2**20 * 1.75 / (0.7 * 300e9)))


@pytest.mark.parametrize(
    ("model", "collectives"),
    [("llama-3.1-8b", 64), ("nemotron-h-56b-base-8k", 118), ("falcon-40b", 60)],
)
def test_layers_have_two_all_reduces_but_parallel_blocks_and_layers_of_one_part_one(model, collectives):
    """facts/roofline.md: after attention and after the feed-forward network; one for parallel blocks. In Nemotron-H
    these are layers of their own."""
    assert work_of(model=model, tp=2).collectives == collectives


# A step


def test_a_decode_step_by_hand():
    """Llama 3.1 8B on H100 SXM, 8 sequences of 4,096 tokens: 70% of 3,350 GB/s, 67% of 989.4 TFLOP/s."""
    read, compute = 0.7 * 3.35e12, 0.67 * 989.4e12
    parts = step_of().parts(0, 8, 8 * 4_096)
    assert parts == pytest.approx(
        StepParts(
            weights_s=2 * (LLAMA_8B - TABLE_8B) / read,  # 6.40 ms
            matrices_s=8 * 2 * (LLAMA_8B - TABLE_8B) / compute,
            cache_s=8 * 4_096 * 131_072 / read,  # 1.83 ms
            attention_s=8 * 4_096 * 524_288 / compute,
            reducing_s=0,
            overhead_s=0,
        )
    )
    assert parts.total_s == pytest.approx(0.0064008 + 0.0018315, rel=1e-4)
    assert parts.reading_s == parts.total_s
    assert parts.binding == "memory_bandwidth"


def test_a_step_with_a_prompt_by_hand():
    """512 tokens that attend to 500 each beside the same 8; the head is for the 8 and for the prompt's last token."""
    compute = 0.67 * 989.4e12
    parts = step_of(attended=500).parts(512, 8, 8 * 4_096 + 512)
    flop = 520 * 2 * (LLAMA_8B - 2 * TABLE_8B) + 9 * 2 * TABLE_8B
    assert parts.matrices_s == pytest.approx(flop / compute)
    assert parts.attention_s == pytest.approx(524_288 * (8 * 4_096 + 512 * 500) / compute)
    assert parts.total_s == pytest.approx(parts.matrices_s + parts.cache_s)
    assert parts.binding == "compute"


def test_drafted_tokens_are_computed_and_read_no_more_cache():
    plain, drafting = step_of().parts(0, 8, 8_000), step_of(spec_method="ngram", spec_tokens=3).parts(0, 8, 8_000)
    assert drafting.matrices_s == pytest.approx(4 * plain.matrices_s)
    assert drafting.attention_s == pytest.approx(4 * plain.attention_s)
    assert (drafting.weights_s, drafting.cache_s) == (plain.weights_s, plain.cache_s)


def test_pipeline_stages_work_on_a_part_of_the_batch_each():
    """Two stages: 32 sequences take what 16 take on all layers, and the way from one to the other."""
    one, two = step_of(), step_of(pp=2)
    assert two.step_s(0, 32, 32_000) == pytest.approx(one.step_s(0, 16, 16_000) + 10e-6)
    assert two.step_s(0, 1, 1_000) == pytest.approx(one.step_s(0, 1, 1_000) + 10e-6)
    assert two.step_s(512, 0, 512) == pytest.approx(one.step_s(512, 0, 512) + 10e-6)


def test_the_host_and_steps_without_graphs_add_their_time():
    plain = step_of().step_s(0, 1, 1_000)
    assert step_of(step_overhead_s=0.003).step_s(0, 1, 1_000) == pytest.approx(plain + 0.003)
    assert step_of(enforce_eager=True).step_s(0, 1, 1_000) == pytest.approx(plain + 0.010)


def test_factors_of_a_plan_take_the_place_of_the_defaults():
    found = step_of(bandwidth_efficiency=0.9, compute_efficiency=0.5)
    assert found.weight_bytes_per_s == found.cache_bytes_per_s == 0.9 * 3.35e12
    assert found.flop_per_s == 0.5 * 989.4e12


@pytest.mark.parametrize(
    ("gpu", "dtype", "rate", "factors"),
    [
        ("h100-sxm", "bf16", (989.4e12, "bf16"), (0.70, 0.67)),
        ("h100-sxm", "fp8", (1978.9e12, "fp8"), (0.70, 0.39)),
        ("l40s", "fp8", (733e12, "fp8"), (0.70, 0.52)),  # Ada
        ("a100-80-sxm", "fp8", (312e12, "bf16"), (0.70, 0.67)),  # no units for it
        ("a100-80-sxm", "int4", (312e12, "bf16"), (0.42, 0.67)),
        ("h100-sxm", "int8", (989.4e12, "bf16"), (0.58, 0.67)),
        ("b200", "nvfp4", (9000e12, "fp4"), (None, 0.39)),
        ("h100-sxm", "nvfp4", (989.4e12, "bf16"), (None, 0.67)),
        ("b200", "mxfp4", (4500e12, "fp8"), (None, 0.39)),
        ("v100-32", "bf16", (125e12, "fp16"), (0.70, 0.67)),
    ],
)
def test_weights_multiply_at_the_rate_of_the_units_a_device_has(gpu, dtype, rate, factors):
    spec = load_preset(gpu, "gpu")
    found = efficiency(spec, dtype, enforce_eager=False)
    assert math_rate(spec, dtype) == rate
    assert factors[0] in (None, found.weights.value)
    assert found.compute.value == factors[1]
    assert found.weights.low <= found.weights.value <= found.weights.high
    assert found.cache.value == 0.70


def test_no_step_time_is_known_without_weights():
    assert step_of(weights_gib=0) is None


# Tokens that come out of a step


@given(st.floats(0, 1), st.integers(0, 64))
def test_a_step_yields_from_one_to_all_of_its_tokens(rate, drafted):
    """Leviathan et al. 2023, equation 1."""
    found = accepted_tokens(rate, drafted)
    assert 1 <= found <= drafted + 1
    if rate < 0.99:
        assert found == pytest.approx((1 - rate ** (drafted + 1)) / (1 - rate), abs=1e-9)


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({"acceptance_rate": 0.8}, 1.0),  # nothing is drafted
        ({"spec_tokens": 3, "acceptance_rate": 0.8}, 1.0),  # by no method
        ({"spec_tokens": 3, "spec_method": "ngram"}, 1.0),  # none is accepted
        ({"spec_tokens": 3, "spec_method": "ngram", "acceptance_rate": 0.8}, 2.952),
        ({"spec_tokens": 3, "spec_method": "ngram", "acceptance_rate": 1.0}, 4.0),
    ],
)
def test_accepted_tokens_of_a_plan(fields, accepted):
    assert step_of(**fields).accepted == accepted


def test_a_step_that_drafts_counts_for_the_tokens_that_come_out_and_a_prompt_counts_whole():
    found = step_of(spec_tokens=3, spec_method="ngram", acceptance_rate=0.8)
    alone = found.step_s(0, 8, 8_000)
    assert found(0, 8, 8_000) == pytest.approx(alone / 2.952)
    added = found.step_s(512, 8, 8_512) - alone
    assert found(512, 8, 8_512) == pytest.approx(alone / 2.952 + added)


# Laws

BATCHES = st.integers(1, 4096)
CONTEXTS = st.floats(1, 2**20)


def ordered(values):
    return st.tuples(values, values).map(sorted)


def known_step(plan, **changes):
    """The step time of a plan an engine does not refuse, whatever its memory."""
    setting = resolve(Plan.model_validate(plan.model_dump() | changes))
    found = None if layout(setting).refused else step_time(setting, 700.0)
    assume(found is not None)
    return found


@settings(max_examples=150)
@given(known_plans(**SERVED), ordered(BATCHES), ordered(CONTEXTS))
def test_no_decode_step_is_shorter_with_more_sequences_or_longer_ones(plan, batches, contexts):
    found = known_step(plan)
    (few, many), (short, long) = batches, contexts
    step = found.step_s(0, few, few * short)
    assert 0 < step < math.inf
    assert step <= found.step_s(0, many, many * short) * ONE_CUT
    assert step <= found.step_s(0, few, few * long) * ONE_CUT


@given(
    known_plans(**SERVED | {"v_dtype": st.none(), "kv_dtype": st.just("auto")}),
    BATCHES,
    CONTEXTS,
    st.sampled_from([{"kv_dtype": ("int4", "fp8")}, {"kv_dtype": ("fp8", "bf16")}, {"weights_gib": (10.0, 30.0)}]),
)
def test_no_decode_step_is_shorter_with_more_bytes(plan, batch, context, wider):
    ((name, (less, more)),) = wider.items()
    step, wide = (known_step(plan, **{name: value}).step_s(0, batch, batch * context) for value in (less, more))
    assert step <= wide * ONE_CUT


@settings(max_examples=200)
@given(known_plans(**SERVED), BATCHES, CONTEXTS, st.integers(1, 8192))
def test_no_step_is_shorter_with_a_prompt(plan, batch, context, prompt):
    found = known_step(plan)
    assert found.step_s(0, batch, batch * context) <= found.step_s(prompt, batch, batch * context + prompt) * ONE_CUT
    assert 0 <= found(0, batch, batch * context) <= found(prompt, batch, batch * context + prompt) * ONE_CUT


@pytest.mark.parametrize(
    ("gpu", "dtype", "matrices", "attention"),
    [
        ("b200", "nvfp4", 9000e12 * 0.39, 2250e12 * 0.67),
        ("h100-sxm", "fp8", 1978.9e12 * 0.39, 989.4e12 * 0.67),
        ("a100-80-sxm", "int4", 312e12 * 0.67, 312e12 * 0.67),
        ("t4", "fp16", 65e12 * 0.67, 65e12 * 0.67),
    ],
)
def test_attention_computes_in_16_bits_whatever_the_weights_are_stored_in(gpu, dtype, matrices, attention):
    step = step_time(resolve(Plan(gpu=gpu, weight_dtype=dtype)), attended=1000)
    assert step.flop_per_s == pytest.approx(matrices)
    assert step.attention_flop_per_s == pytest.approx(attention)
    assert step.parts(2000, 0, 2000).attention_s == pytest.approx(
        2000 * step.work.prefill_attention(1000) / attention, rel=1e-12
    )


@given(known_plans(**SERVED), BATCHES, CONTEXTS, st.sampled_from([0, 0, 1, 512]))
def test_what_a_run_remembers_changes_no_step(plan, batch, held, prefill):
    step = step_time(resolve(plan), attended=100.0)
    assume(step is not None)
    kept = remembered(step)
    for decoding in (batch, 1, batch, 0):
        asked = (prefill, decoding, prefill + decoding * held)
        assert kept(*asked) == pytest.approx(step(*asked), rel=1e-12)
