"""The presets against the tables they were made from and against published configs; and how models are found by words.

The tables are facts/models.json and facts/gpus.json of the folder beside the checkout; tests of them skip without it.
"""

import json
import operator
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONFIGS

from kvplan import catalog, load_preset, model_from_hf_config, presets
from kvplan.catalog import Library, find_models
from kvplan.specs import expanded

FACTS = Path(__file__).parents[2] / "shared" / "facts"
ENDINGS = ("-instruct", "-it", "-chat", "-base", "-hf")
WITHOUT_HF_ID = {"OPT 175B": "opt-175b", "GPT-3 175B (paper)": "gpt-3", "PaLM 540B (paper, MQA)": "palm-540b"}
CONFIG_SOURCED = {"groups", "num_attention_heads", "max_position_embeddings", "shape"}
"""Numbers of a preset that come from its config, so that they are recalled where the config is."""
COUNTED = {"parameters", "weight_bytes", "expert_parameters", "input_embedding_parameters"}
"""Numbers that may be recalled with it: they are counted from such a config."""

OTHER_NAMES = {
    "Jamba-1.5-Mini": "ai21-jamba-mini-1.5",
    "Llama-2-7b": "llama-2-7b",
    "Meta-Llama-3.1-405B": "llama-3.1-405b",
    "Meta-Llama-3.1-70B": "llama-3.1-70b",
    "Meta-Llama-3.1-8B": "llama-3.1-8b",
    "Ministral-3-3B-2512": "ministral-3-3b-instruct-2512",
    "Mistral-7B-v0.3": "mistral-7b-instruct-v0.3",
    "OLMo-2-32B": "olmo-2-0325-32b",
    "Olmo-3.1-32B": "olmo-3.1-32b",
    "Phi-3-mini-4k": "phi-3-mini-4k",
    "Phi-3.5-mini": "phi-3.5-mini",
    "Qwen2-7B": "qwen2-7b",
    "Qwen3-235B-A22B-NVFP4": "qwen3-235b-a22b",
    "Qwen3-Next-80B-A3B": "qwen3-next-80b-a3b",
    "starcoder2": "starcoder2-7b",
}
"""Configs of the tests' table whose names are not those of a preset's repository."""
WITHOUT_PRESET = {"RedPajama-3B", "gemma-3n-E4B-text", "gpt_bigcode-1b-mqa", "santacoder"}
NOT_IN_THE_TABLE = {
    "Kimi-K3": {"text_config": {"num_experts_per_token": 16}},
    "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": {"moe_latent_size": 2048},
    "gemma-4-26B-A4B": {"text_config": {"top_k_experts": 8}},
}
"""Fields of a published config that the tests' table, made for layers alone, leaves out: they size its experts."""


def entries(file, name):
    """The entries of a table of facts; none where the folder is not on this machine."""
    path = FACTS / file
    return json.loads(path.read_text())[name] if path.is_file() else []


MODELS = entries("models.json", "models")
GPUS = entries("gpus.json", "accelerators")
beside_facts = pytest.mark.skipif(not FACTS.is_dir(), reason="the tables of facts are not on this machine")


def preset_id(fact):
    """The id that a preset of a model has: its repository in lower case without endings that say how it was tuned."""
    if fact["hf_id"] is None:
        return WITHOUT_HF_ID[fact["name"]]
    name = fact["hf_id"].rpartition("/")[2].lower()
    while name.endswith(ENDINGS):
        name = name.rpartition("-")[0]
    return name


def each(facts, name):
    return pytest.mark.parametrize("fact", facts, ids=[name(fact) for fact in facts])


def each_model(test):
    return beside_facts(each(MODELS, preset_id)(test))


def each_gpu(test):
    return beside_facts(each(GPUS, operator.itemgetter("id"))(test))


def layers_of(spec):
    return expanded(spec.groups)


def elements(layer):
    """Elements one layer stores for a token: keys and values of every head, or one latent vector."""
    return layer.head_dim if layer.kind == "mla" else layer.kv_heads * (layer.head_dim + layer.value_head_dim)


def window_elements(layer):
    """Elements one layer stores for a token of its window; DeepSeek-V4 keeps one vector for key and value."""
    return layer.head_dim if layer.kind == "compressed" else elements(layer)


def recalled(spec):
    return {name for name, source in spec.sources.items() if source.recalled}


# Models beside the table of facts


@beside_facts
def test_every_model_of_the_table_has_an_id_of_its_own():
    ids = [preset_id(fact) for fact in MODELS]
    assert len(set(ids)) == len(ids) == 137
    assert {fact["name"] for fact in MODELS if fact["hf_id"] is None} == WITHOUT_HF_ID.keys()


@each_model
def test_every_model_of_the_table_has_a_preset_with_its_counts(fact):
    spec = load_preset(preset_id(fact), "model")
    assert spec.id == preset_id(fact)
    assert spec.hf_id == fact["hf_id"]
    assert spec.parameters == fact["params_computed"]
    assert spec.weight_bytes == fact["checkpoint_bytes"]


@each_model
def test_every_model_of_the_table_is_found_by_the_id_of_its_repository(fact):
    names = [preset_id(fact), *([fact["hf_id"], fact["hf_id"].lower()] if fact["hf_id"] else [])]
    assert {load_preset(name, "model").id for name in names} == {preset_id(fact)}


@each_model
def test_the_layers_of_a_preset_store_for_each_token_what_the_table_says(fact):
    spec = load_preset(preset_id(fact), "model")
    layers = layers_of(spec)
    assert len(layers) == fact["layers"]
    assert spec.num_attention_heads == fact["num_attention_heads"]
    assert spec.max_position_embeddings == fact["max_position_embeddings"]
    compressed = [layer for layer in layers if layer.kind == "compressed"]
    assert bool(compressed) == (fact["model_type"] == "deepseek_v4")
    if compressed:
        entries_per_token = [1 / layer.compress_ratio for layer in layers if layer.compress_ratio]
        growing = sum(512 * share for share in entries_per_token)
        indexers = sum(layer.index_dim / layer.compress_ratio for layer in layers if layer.index_dim)
    else:
        growing = sum(elements(layer) for layer in layers if layer.kind in ("full", "mla"))
        indexers = sum(layer.index_dim for layer in layers)
    assert growing == fact["kv_growing_elems_per_token"]
    assert indexers == fact["kv_indexer_elems_per_token"]


@each_model
def test_the_windows_of_a_preset_are_those_of_the_table(fact):
    layers = layers_of(load_preset(preset_id(fact), "model"))
    found = Counter((window_elements(layer), layer.window) for layer in layers if layer.window is not None)
    expected = Counter()
    for window in fact["kv_windowed"]:
        expected[window["elems_per_token_per_layer"], window["tokens"]] += window["layers"]
    assert found == expected


@each_model
def test_the_states_of_a_preset_are_those_of_the_table(fact):
    """A convolution over so many positions keeps one row fewer."""
    states = [layer.state for layer in layers_of(load_preset(preset_id(fact), "model")) if layer.state]
    rows = sum((state.conv_kernel - 1) * (state.conv_channels + state.replicated_channels) for state in states)
    assert rows == fact["state_conv_elems"]
    assert sum(state.recurrent_elements for state in states) == fact["state_ssm_elems"]


@each_model
def test_a_number_that_was_only_remembered_is_marked_so_in_its_preset_and_no_other(fact):
    """A config may be recalled as a whole, or of a config that was read only the widths its source had not."""
    marked = recalled(load_preset(preset_id(fact), "model"))
    texts = [fact["config_source"] or "", fact["params_method"] or ""]
    if any("hidden/intermediate" in text and "recalled" in text for text in texts):
        assert marked == {"shape"}
    elif "recalled" in texts[0]:
        assert marked >= CONFIG_SOURCED
        assert marked <= CONFIG_SOURCED | COUNTED | {"num_experts"}
    else:
        assert marked == set()


@beside_facts
def test_models_whose_configs_were_only_remembered_are_provisional():
    remembered = {preset_id(fact) for fact in MODELS if recalled(load_preset(preset_id(fact), "model")) & {"groups"}}
    assert remembered == {"gpt-3", "palm-540b", "dbrx", "grok-1"}
    assert all(load_preset(name, "model").provisional for name in remembered)


# GPUs beside the table of facts


@beside_facts
def test_every_gpu_of_the_table_has_a_preset_and_no_preset_is_of_another():
    assert {fact["id"] for fact in GPUS} == set(presets("gpu"))
    assert Counter(fact["memory_plan_bytes"] is not None for fact in GPUS) == {True: 38, False: 13}


@each_gpu
def test_the_total_of_a_gpu_is_the_drivers_or_the_marketed_size_as_an_estimate(fact):
    spec = load_preset(fact["id"], "gpu")
    source = spec.sources["total_bytes"]
    if fact["memory_plan_bytes"] is not None:
        assert spec.total_bytes == fact["memory_plan_bytes"]
        assert not source.text.startswith("marketing")
        assert source.recalled == (fact["torch_total_basis"] or "").startswith("recalled")
    else:
        assert spec.total_bytes == fact["memory_marketed_gb"] * 10**9
        assert source.text.startswith("marketing, estimate")
        assert source.mark == "estimate"


@each_gpu
def test_the_rates_of_a_gpu_are_those_of_the_table_and_marked_where_they_were_remembered(fact):
    spec = load_preset(fact["id"], "gpu")
    rates = fact["dense_tflops"]
    assert spec.vendor == fact["vendor"]
    assert spec.compute_capability == fact["compute_capability"]
    assert spec.bandwidth_bytes_per_s == pytest.approx(fact["mem_bw_gbps"] * 1e9, abs=1)
    assert (spec.bf16_flop_per_s or 0) == pytest.approx((rates["bf16"] or 0) * 1e12, abs=1)
    assert (spec.fp8_flop_per_s or 0) == pytest.approx((rates["fp8"] or 0) * 1e12, abs=1)
    assert (recalled(spec) - {"total_bytes"} != set()) == fact["spec_recalled"]


# Published configs


def letters(name):
    """A name without case and punctuation."""
    return "".join(character for character in name.lower() if character.isalnum())


REPOSITORIES = {
    letters(spec.hf_id.rpartition("/")[2]): spec.id
    for spec in (load_preset(name, "model") for name in presets("model"))
    if spec.hf_id
}
OF_CONFIGS = {name: OTHER_NAMES.get(name) or REPOSITORIES.get(letters(name)) for name in CONFIGS}
KNOWN_CONFIGS = {name: model for name, model in OF_CONFIGS.items() if model is not None}
each_config = pytest.mark.parametrize(("name", "model"), KNOWN_CONFIGS.items(), ids=KNOWN_CONFIGS)


def published(name):
    """A config of the tests' table with the fields that the table leaves out."""
    config, more = CONFIGS[name], NOT_IN_THE_TABLE.get(name, {})
    nested = {key: config[key] | value for key, value in more.items() if isinstance(value, dict)}
    return config | more | nested


def test_every_config_belongs_to_a_preset_or_is_known_to_have_none():
    assert {name for name, model in OF_CONFIGS.items() if model is None} == WITHOUT_PRESET
    assert not OTHER_NAMES.keys() & {name for name in CONFIGS if letters(name) in REPOSITORIES}
    assert OTHER_NAMES.keys() | NOT_IN_THE_TABLE.keys() <= CONFIGS.keys()


@each_config
def test_a_published_config_gives_the_layers_heads_and_widths_of_its_preset(name, model):
    """Hugging Face config."""
    spec, read = load_preset(model, "model"), model_from_hf_config(published(name))
    assert read.groups == spec.groups
    assert read.num_attention_heads == spec.num_attention_heads
    assert read.shape == spec.shape


@each_config
def test_a_published_config_gives_the_parameters_of_its_preset_where_it_counts_them(name, model):
    """Hugging Face config; parameters of a preset were counted with the modelling code."""
    spec, read = load_preset(model, "model"), model_from_hf_config(published(name))
    assert read.parameters in (None, spec.parameters)
    assert (read.parameters is None) == (model in ("deepseek-v4-flash", "kimi-k3"))
    assert (read.unquantized_parameters is None) == (read.parameters is None)


# Finding a model by words

EVERY_MODEL = presets("model")
WORDS = st.sampled_from(
    ["mla", "gqa", "moe", "qwen", "llama", "hybrid", "deltanet", "meta-llama/", "<10b", ">=70b", "<=8b", ">600b", "r1"]
)


def found(words):
    return [spec.id for spec in find_models(words)]


@pytest.mark.parametrize("words", ["", " ", "\t\n"])
def test_no_words_find_every_model_in_the_order_of_the_catalog(words):
    assert found(words) == EVERY_MODEL


@pytest.mark.parametrize(
    "words",
    ["nonsense", "llama nonsense", "<0b", ">99999b", ">10b <10b", "<10", "<b", "=8b", "<>8b", "<-1b", "8b<", "§"],
)
def test_words_that_fit_no_model_find_none(words):
    assert found(words) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deepseek r1", ["deepseek-r1"]),
        ("R1 DeepSeek", ["deepseek-r1"]),
        ("mla >600b deepseek r1", ["deepseek-r1"]),
        ("mla <600b deepseek r1", []),
        ("openai/gpt-oss", ["gpt-oss-20b", "gpt-oss-120b"]),
        ("gpt-oss >100b", ["gpt-oss-120b"]),
        ("qwen3_next", ["qwen3-next-80b-a3b"]),
        ("llama-3.1 8b fp8", []),
        ("llama-3.1 fp8", ["llama-3.1-70b-instruct-fp8"]),
    ],
)
def test_every_word_must_fit_in_whatever_order_and_case(words, expected):
    assert found(words) == expected


@given(st.lists(WORDS, max_size=4), WORDS)
def test_another_word_keeps_of_what_was_found_what_it_finds_alone(words, more):
    both, alone = set(found(" ".join([*words, more]))), set(found(more))
    assert both == set(found(" ".join(words))) & alone


@pytest.mark.parametrize(
    ("word", "compare"), [("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge)]
)
@pytest.mark.parametrize("size", ["0.6", "8", "13.016", "70", "671"])
def test_a_size_compares_with_billions_of_parameters(word, compare, size):
    """Brute force over every model."""
    specs = [load_preset(name, "model") for name in EVERY_MODEL]
    expected = {spec.id for spec in specs if spec.parameters and compare(spec.parameters, float(size) * 1e9)}
    assert set(found(f"{word}{size}b")) == set(found(f"{word}{size}B")) == expected
    assert 0 < len(expected) < len(specs)


@pytest.mark.parametrize(("word", "fits"), [("<8b", False), ("<=8b", True), (">8b", False), (">=8b", True)])
def test_a_model_of_exactly_a_size_is_neither_below_nor_above_it(word, fits, monkeypatch):
    """Worked example: 8,000,000,000 parameters."""
    even = load_preset("llama-3.1-8b", "model").model_copy(update={"id": "even", "parameters": 8_000_000_000})
    monkeypatch.setattr(catalog, "library", lambda kind: Library({"even": even}, (), ()))
    assert [spec.id for spec in find_models(word)] == (["even"] if fits else [])


@pytest.mark.parametrize("word", ["<8b", "<=8b", ">8b", ">=8b"])
def test_a_model_of_unknown_size_fits_no_size(word, monkeypatch):
    unknown = load_preset("llama-3.1-8b", "model").model_copy(update={"id": "unknown", "parameters": None})
    monkeypatch.setattr(catalog, "library", lambda kind: Library({"unknown": unknown}, (), ()))
    assert find_models(word) == []
    assert find_models("llama") == [unknown]


def test_the_word_provisional_finds_the_models_that_are():
    provisional = [name for name in EVERY_MODEL if load_preset(name, "model").provisional]
    assert found("provisional") == provisional
    assert {"gpt-3", "palm-540b"} <= set(provisional)


@pytest.mark.parametrize("word", ["MoE", "multimodal", "MLA", "MQA", "Mamba-2", "sliding", "indexer"])
def test_a_word_of_the_description_finds_models_of_its_kind(word):
    expected = {
        "MoE": lambda spec: spec.num_experts > 0,
        "multimodal": lambda spec: spec.multimodal,
        "MLA": lambda spec: any(layer.kind == "mla" for layer in spec.groups),
        "MQA": lambda spec: any(layer.kv_heads == 1 for layer in spec.groups if layer.kind in ("full", "sliding")),
        "Mamba-2": lambda spec: any(layer.kind == "mamba2" for layer in spec.groups),
        "sliding": lambda spec: any(layer.kind == "sliding" for layer in spec.groups),
        "indexer": lambda spec: any(layer.index_dim for layer in spec.groups),
    }[word]
    of_its_kind = {name for name in EVERY_MODEL if expected(load_preset(name, "model"))}
    assert of_its_kind
    assert of_its_kind <= set(found(word))
    others = [load_preset(name, "model") for name in found(word) if name not in of_its_kind]
    assert all(word.lower() in f"{spec.id} {spec.hf_id} {spec.model_type}".lower() for spec in others)
