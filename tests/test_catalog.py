"""The presets that are shipped, what happens to a broken one, and how a plan's open fields are filled in."""

import contextlib
import csv
import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONFIGS, PACKED_MODELS, known_plans

from kvplan import Plan, catalog, evaluate, lengths, load_preset, model_from_hf_config, presets
from kvplan.catalog import resolve
from kvplan.overrides import layer_total
from kvplan.specs import LayerGroup, LayerState, expanded, runs
from kvplan.startup import Startup
from kvplan.texts import groups_from_text, spec_text, table_text
from kvplan.units import GIB

ROOT = Path(__file__).parents[1]
KINDS = ("model", "gpu", "workload", "plan")
FILES = [(kind, path) for kind in KINDS for path in sorted((ROOT / "presets" / f"{kind}s").glob("*.json"))]
FACTS = [(kind, path) for kind, path in FILES if kind != "plan"]
MODELS = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-3.1-405b",
    "llama-3.3-70b",
    "gpt-3",
    "qwen3-30b-a3b",
    "mixtral-8x7b-v0.1",
)
KINDS_OF_LAYERS = {
    "deepseek-v3": {"mla"},
    "gemma-3-27b": {"sliding", "full"},
    "gpt-oss-20b": {"sliding", "full"},
    "gpt-oss-120b": {"sliding", "full"},
    "qwen3-next-80b-a3b": {"gated_deltanet", "full"},
    "llama-3.1-8b": {"full"},
    "llama-4-scout-17b-16e": {"chunked", "full"},
    "mistral-7b-v0.1": {"sliding"},
    "mistral-7b-instruct-v0.3": {"full"},
    "gemma-4-e2b": {"sliding", "full", "none"},
    "gemma-4-31b": {"sliding", "full"},
    "granite-4.0-micro": {"full"},
    "granite-4.0-h-micro": {"mamba2", "full"},
    "kimi-k3": {"kda", "mla"},
}
"""What some models have, by name."""
KINDS_OF_FAMILIES = {
    "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa kimi_k2 kimi_k25": ["mla"],
    "deepseek_v4": ["compressed"],
    "cohere2 gemma2 gemma3 gemma3_text gpt_oss mimo_v2_flash olmo3": ["sliding full"],
    "gemma4": ["sliding full", "sliding full none"],  # the small ones share the caches of other layers
    "mistral phi3 starcoder2": ["full", "sliding"],  # some sizes or versions have a window
    "llama4": ["chunked full"],
    "nemotron-nas": ["full none"],
    "falcon_mamba": ["mamba1"],
    "jamba": ["mamba1 full"],
    "granitemoehybrid": ["full", "mamba2 full"],
    "nemotron_h": ["mamba2 none full"],
    "qwen3_next qwen3_5 qwen3_5_moe": ["gated_deltanet full"],
    "kimi_k3": ["kda mla"],
    "lfm2": ["short_conv full"],
}
"""Families that are not of full attention alone, and the kinds of layers that one of their models may have."""
ALLOWED_KINDS = {
    family: [set(kinds.split()) for kinds in allowed]
    for families, allowed in KINDS_OF_FAMILIES.items()
    for family in families.split()
}
SHIPPED_CONFIGS = {
    "deepseek-v3": "DeepSeek-V3",
    "gemma-3-27b": "gemma-3-27b-it",
    "gpt-oss-20b": "gpt-oss-20b",
    "llama-2-7b": "Llama-2-7b",
    "llama-3.1-8b": "Meta-Llama-3.1-8B",
    "llama-3.1-70b": "Meta-Llama-3.1-70B",
    "llama-3.1-405b": "Meta-Llama-3.1-405B",
    "llama-3.2-1b": "Llama-3.2-1B",
    "llama-3.2-3b": "Llama-3.2-3B",
    "mixtral-8x7b-v0.1": "Mixtral-8x7B-v0.1",
    "qwen2.5-32b": "Qwen2.5-32B",
    "qwen3-8b": "Qwen3-8B",
    "qwen3-30b-a3b": "Qwen3-30B-A3B",
    "qwen3-32b": "Qwen3-32B",
    "qwen3-235b-a22b": "Qwen3-235B-A22B",
    "qwen3-next-80b-a3b": "Qwen3-Next-80B-A3B",
}
"""Shipped models whose config.json is in the tests' table, as some stand there under another name."""
WITHOUT_HF_ID = {"gpt-3", "opt-175b", "palm-540b"}
"""Models that were never released on the Hub."""
MARKETED_GB = {
    "h100-sxm": 80,
    "h200": 141,
    "b200": 180,
    "a100-80-sxm": 80,
    "a100-40-sxm": 40,
    "l40s": 48,
    "l4": 24,
    "rtx4090": 24,
}

STATE = LayerState(conv_kernel=4, conv_channels=1024, recurrent_elements=65_536)
FULL = LayerGroup(kind="full", layers=4, kv_heads=8, head_dim=128, value_head_dim=128)
SLIDING = FULL.model_copy(update={"kind": "sliding", "window": 1024, "layers": 5})
DELTA = LayerGroup(kind="gated_deltanet", layers=3, state=STATE)
NO_CACHE = LayerGroup(kind="none", layers=2)


def has_full_layers(model):
    return any(group.kind == "full" for group in model.groups)


def shipped_configs():
    """Pairs of a shipped model and a config.json of the tests' table that look-up takes for one another."""
    for name in CONFIGS:
        with contextlib.suppress(ValueError):
            yield load_preset(name, "model").id, name


def file_id(case):
    return f"{case[0]}-{case[1].stem}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the presets in their place, which a test may spoil."""
    catalog.refresh()
    copy = shutil.copytree(catalog.presets_dir(), tmp_path / "presets")
    monkeypatch.setattr(catalog, "presets_dir", lambda: copy)
    catalog.refresh()
    yield copy
    monkeypatch.undo()
    catalog.refresh()


def edit(path, change):
    """Rewrite a JSON file after `change` was applied to its data."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# What is shipped


@pytest.mark.parametrize("kind", KINDS)
def test_no_shipped_file_is_broken_and_each_is_found_under_its_files_name(kind):
    stems = {path.stem for file_kind, path in FILES if file_kind == kind}
    assert catalog.library(kind).broken == ()
    assert set(presets(kind)) == stems
    assert all(spec.id == name for name, spec in catalog.library(kind).specs.items())


@pytest.mark.parametrize("case", FACTS, ids=file_id)
def test_every_number_of_a_file_has_a_source_that_says_something(case):
    data = json.loads(case[1].read_text())
    numbers = {name for name, value in data.items() if isinstance(value, (int, float, list, dict))}
    numbers -= {"sources"} | {name for name, value in data.items() if isinstance(value, bool)}
    assert numbers
    assert numbers <= data["sources"].keys()
    spec = load_preset(case[1].stem, case[0])
    assert all(len(source.text) >= 10 for source in spec.sources.values())


def test_the_promised_models_are_there():
    ids = presets("model")
    assert set(MODELS) | KINDS_OF_LAYERS.keys() | SHIPPED_CONFIGS.keys() <= set(ids)
    assert len(ids) >= 160
    for family in ("llama-2-", "qwen2.5-", "qwen3-"):
        assert any(name.startswith(family) for name in ids), family


def test_the_promised_gpus_workloads_and_ready_plans_are_there():
    assert set(presets("gpu")) >= MARKETED_GB.keys()
    assert len(presets("gpu")) >= 51
    assert {"azure-conversation", "seeded-200"} <= set(presets("workload"))
    assert len(presets("plan")) >= 4


@pytest.mark.parametrize("name", presets("model"))
def test_every_shipped_model_has_the_kinds_of_layers_it_should_and_is_computed(name):
    model = load_preset(name, "model")
    kinds = {group.kind for group in model.groups}
    assert kinds in ALLOWED_KINDS.get(model.model_type, [{"full"}])
    assert kinds == KINDS_OF_LAYERS.get(name, kinds)
    report = evaluate(Plan(model=name, tp=1, kv_cache_memory_bytes=2**40))
    assert report.engine.refused is None
    assert report.engine.fits
    assert report.cache.request_bytes_held > 0
    # A window as long as the model was trained for bounds nothing.
    unbounded = any((group.window or 0) >= model.max_position_embeddings for group in model.groups)
    assert (report.cache.bytes_per_token > 0) == (unbounded or bool(kinds & {"full", "mla", "compressed"}))


def test_every_family_of_the_table_is_shipped():
    assert ALLOWED_KINDS.keys() <= {spec.model_type for spec in catalog.library("model").specs.values()}


@pytest.mark.parametrize(("name", "config"), sorted({*SHIPPED_CONFIGS.items(), *shipped_configs()}))
def test_a_shipped_model_caches_as_its_own_config_says(name, config):
    """Hugging Face config: the preset and the reader of config.json agree on what every answer depends on."""
    preset, read = load_preset(name, "model"), model_from_hf_config(CONFIGS[config])
    fields = ("groups", "model_type", "num_attention_heads", "mtp_layers", "num_experts", "kv_cache_dtype", "dtype")
    assert {field: getattr(preset, field) for field in fields} == {field: getattr(read, field) for field in fields}


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_starts_and_has_nothing_to_complain_about(name):
    report = evaluate(load_preset(name))
    assert report.engine.fits
    assert report.notes == ()


@pytest.mark.parametrize("name", MARKETED_GB)
def test_the_memory_of_a_gpu_is_what_the_driver_reports_not_what_is_marketed(name):
    gpu = load_preset(name, "gpu")
    marketed = MARKETED_GB[name]
    assert gpu.total_bytes not in (marketed * 10**9, marketed * GIB)
    assert 0.9 * marketed * GIB < gpu.total_bytes < marketed * GIB
    assert "driver" in gpu.sources["total_bytes"].text


@pytest.mark.parametrize("name", presets("gpu"))
def test_a_total_is_the_drivers_or_says_that_it_is_the_marketed_size(name):
    gpu = load_preset(name, "gpu")
    source = gpu.sources["total_bytes"]
    if marketed := re.fullmatch(
        r"marketing, estimate: sold as (\d+) GB; no total of a driver was found.*", source.text
    ):
        assert gpu.total_bytes == int(marketed[1]) * 10**9
        assert source.mark == "estimate"
    else:
        assert source.text.startswith("total memory the driver reports to a framework: ")
        assert gpu.total_bytes % 10**9


@pytest.mark.parametrize("name", presets("gpu"))
def test_rates_are_dense_so_fp8_is_at_most_twice_bf16(name):
    gpu = load_preset(name, "gpu")
    assert gpu.bf16_flop_per_s is None or gpu.bf16_flop_per_s >= 10**13
    if gpu.fp8_flop_per_s:
        assert gpu.fp8_flop_per_s <= 2.05 * gpu.bf16_flop_per_s


def test_the_shipped_azure_table_is_made_from_the_raw_trace(shared):
    with (shared / "traces" / "AzureLLMInferenceTrace_conv.csv").open() as lines:
        requests = list(csv.DictReader(lines))
    rows = lengths.to_table(
        [int(request["GeneratedTokens"]) for request in requests],
        [int(request["ContextTokens"]) for request in requests],
    )
    expected = tuple((count, round(output, 6), round(prompt, 6)) for count, output, prompt in rows)
    assert load_preset("azure-conversation", "workload").table == expected


def test_the_azure_workload_names_its_licence_and_its_makers():
    spec = load_preset("azure-conversation", "workload")
    assert sum(count for count, _, _ in spec.table) == 19_366
    assert "CC-BY-4.0" in spec.licence
    assert "Azure" in spec.attribution


def test_the_seeded_workload_is_what_the_generator_draws():
    generator = random.Random(37)
    drawn = [generator.randint(400, 700) if generator.random() < 0.1 else generator.randint(8, 40) for _ in range(200)]
    assert load_preset("seeded-200", "workload").samples == tuple((0, length) for length in drawn)


# A broken file, a new file


def drop(name):
    return lambda data: data.pop(name)


def put(value, *path):
    def change(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("file", "change", "field", "reason"),
    [
        ("models/llama-3.1-8b.json", drop("groups"), "groups", "required"),
        ("models/llama-3.1-8b.json", put("llama-3.1-9b", "id"), "id", "'llama-3.1-8b'"),
        ("models/llama-3.1-8b.json", put({}, "sources"), "sources", "parameters, weight_bytes"),
        ("models/llama-3.1-8b.json", lambda data: data["sources"].pop("weight_bytes"), "sources", "weight_bytes"),
        ("models/llama-3.1-8b.json", lambda data: data["sources"].pop("shape"), "sources", "missing for shape"),
        ("models/llama-3.1-8b.json", put(0, "shape", "hidden_size"), "shape.hidden_size", "than or equal to 1"),
        ("models/llama-3.1-8b.json", put(0, "groups", 0, "layers"), "groups.0.layers", "greater than or equal to 1"),
        ("models/llama-3.1-8b.json", put("red", "colour"), "colour", "not permitted"),
        ("models/llama-3.1-8b.json", put("fp7", "kv_cache_dtype"), "kv_cache_dtype", "got 'fp7'"),
        ("gpus/l4.json", put("lots", "total_bytes"), "total_bytes", "got 'lots'"),
        ("gpus/l4.json", lambda data: data["sources"].pop("bandwidth_bytes_per_s"), "sources", "bandwidth_bytes"),
        ("workloads/seeded-200.json", drop("licence"), "licence", "required"),
        ("workloads/seeded-200.json", put([[0, 0]], "samples"), "samples.0.1", "greater than or equal to 1"),
        ("workloads/seeded-200.json", put({}, "sources"), "sources", "missing for samples"),
        ("plans/llama-8b-chat-l4.json", put(0, "plan", "tp"), "plan.tp", "greater than or equal to 1"),
    ],
)
def test_a_broken_file_is_named_with_field_and_reason_while_the_others_load(folder, file, change, field, reason):
    path = folder / file
    kind = path.parent.name.removesuffix("s")
    before = presets(kind)
    edit(path, change)
    catalog.refresh()
    (line,) = catalog.library(kind).broken
    assert line.startswith(f"{file}: {field}: ")
    assert reason in line
    assert presets(kind) == [name for name in before if name != path.stem]


@pytest.mark.parametrize("content", [b"", b"{", b'{"id": "l4",}', b"\xff\xfe", b"[]", b"null", b'"l4"', b"NaN"])
def test_a_file_that_holds_no_json_object_is_named_while_the_others_load(folder, content):
    before = presets("gpu")
    (folder / "gpus/l4.json").write_bytes(content)
    catalog.refresh()
    (line,) = catalog.library("gpu").broken
    assert line.startswith("gpus/l4.json: ")
    assert "\n" not in line
    assert len(line) > len("gpus/l4.json: ")
    assert presets("gpu") == [name for name in before if name != "l4"]


def test_a_folder_in_a_presets_place_is_named_while_the_others_load(folder):
    (folder / "gpus/box.json").mkdir()
    catalog.refresh()
    (line,) = catalog.library("gpu").broken
    assert line.startswith("gpus/box.json: ")
    assert "l4" in presets("gpu")


def test_a_link_that_leads_nowhere_is_no_reason_to_stop(folder):
    """An editor may lay such a link beside the file it has open."""
    (folder / "gpus/.#l4.json").symlink_to("nobody@nowhere.1")
    catalog.refresh()
    assert "l4" in presets("gpu")


def test_a_new_file_appears_after_refresh_and_a_removed_one_goes(folder):
    assert "mine" not in presets("model")
    spec = json.loads((folder / "models/llama-3.1-8b.json").read_text())
    (folder / "models/mine.json").write_text(json.dumps(spec | {"id": "mine", "name": "Mine", "hf_id": "me/Mine-XL"}))
    catalog.refresh()
    assert "mine" in presets("model")
    assert load_preset("someone/mine-xl-instruct", "model").name == "Mine"
    assert evaluate(Plan(model="mine")).cache.bytes_per_token == 131072
    (folder / "models/mine.json").unlink()
    catalog.refresh()
    assert evaluate(Plan(model="mine")).setting is None


def test_a_changed_file_is_read_again_after_refresh(folder):
    assert evaluate(Plan()).cache.bytes_per_token == 131072
    edit(folder / "models/llama-3.1-8b.json", put(64, "groups", 0, "layers"))
    catalog.refresh()
    assert evaluate(Plan()).cache.bytes_per_token == 2 * 131072


def test_a_file_added_before_the_first_refresh_appears_too(tmp_path):
    program = """
import json, pathlib, shutil, sys
from kvplan import catalog
folder = pathlib.Path(shutil.copytree(catalog.presets_dir(), sys.argv[1]))
catalog.presets_dir = lambda: folder
assert "mine" not in catalog.presets("gpu")
spec = json.loads((folder / "gpus/l4.json").read_text())
(folder / "gpus/mine.json").write_text(json.dumps(spec | {"id": "mine"}))
catalog.refresh()
print("mine" in catalog.presets("gpu"))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "presets")]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "True\n"


# Look-up


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("LLAMA-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("somebody-else/llama-3.1-70b", "llama-3.1-70b"),
        ("Qwen3-8B-Base", "qwen3-8b"),
        ("qwen2.5-7b-instruct", "qwen2.5-7b"),
        ("llama-2-7b-chat-hf", "llama-2-7b"),
        ("llama-3.1-8b-it", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Meta-Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3-8B", "meta-llama-3-8b"),
        ("llama-3-8b-instruct", "meta-llama-3-8b"),
        ("  gpt-3 ", "gpt-3"),
    ],
)
def test_a_model_is_found_whatever_its_case_owner_and_ending(name, found):
    assert load_preset(name, "model").id == found


@pytest.mark.parametrize("name", presets("model"))
def test_every_model_is_found_by_its_hugging_face_id(name):
    spec = load_preset(name, "model")
    assert load_preset(spec.hf_id or name, "model") == spec
    assert (spec.hf_id is None) == (name in WITHOUT_HF_ID)


@pytest.mark.parametrize(
    ("name", "kind", "nearest"),
    [
        ("llama-3.1-9b", "model", "llama-3.1-8b"),
        ("Qwen/Qwen3-31B-Instruct", "model", "qwen3-32b"),
        ("h100", "gpu", "h100-sxm"),
        ("azure-conversations", "workload", "azure-conversation"),
        ("llama-70b-chat-4xh200", "plan", "llama-70b-chat-4xh100"),
    ],
)
def test_an_unknown_name_is_refused_with_kind_name_and_the_nearest(name, kind, nearest):
    with pytest.raises(ValueError, match=f"^{kind}: .*{name}.*nearest: .*{nearest}"):
        load_preset(name, kind)


@pytest.mark.parametrize(
    ("name", "kind", "begin"),
    [
        ("h100", "gpu", "h100-"),
        ("a100-", "gpu", "a100-"),
        ("Qwen/Qwen3", "model", "qwen3-"),
        ("meta-llama/Meta-Llama-3.1", "model", "llama-3.1-"),
        ("azure", "workload", "azure-"),
    ],
)
def test_names_that_begin_with_an_unknown_one_are_the_nearest(name, kind, begin):
    with pytest.raises(ValueError, match=f"^{kind}: ") as caught:
        load_preset(name, kind)
    named = str(caught.value).partition("; nearest: ")[2].split(", ")
    beginning = [known for known in presets(kind) if known.startswith(begin)]
    assert named[: len(beginning)] == beginning[:3]
    assert len(named) == min(3, len(presets(kind)))


def test_an_unknown_kind_is_refused_with_the_kinds_there_are():
    with pytest.raises(ValueError, match=r"^kind: .*model, gpu, workload, plan, got 'planet'"):
        presets("planet")


def test_a_ready_plan_loads_as_a_plan():
    assert load_preset("llama-70b-chat-4xh100") == Plan(model="llama-3.1-70b", tp=4, context=32768)


# From a plan to a setting


def test_fields_left_open_come_from_model_gpu_and_engine():
    model, gpu = load_preset("llama-3.1-8b", "model"), load_preset("h100-sxm", "gpu")
    setting = resolve(Plan())
    assert (setting.model, setting.gpu) == (model, gpu)
    assert setting.total_bytes == gpu.total_bytes
    assert setting.weight_bytes == model.weight_bytes
    assert setting.utilization == 0.92
    assert (setting.kv_dtype, setting.v_dtype, setting.model_cache_dtype) == ("bf16", "bf16", "bf16")
    assert evaluate(Plan()).engine.block_size == 16
    assert setting.notes == ()


def test_a_value_in_the_plan_overrides_even_where_it_is_zero():
    plan = Plan(
        gpu_memory_gib=10,
        weights_gib=0,
        activation_gib=0,
        non_torch_gib=0,
        cuda_graph_gib=0,
        gpu_memory_utilization=0,
        kv_dtype="fp8",
        v_dtype="int4",
        block_size=64,
    )
    setting = resolve(plan)
    assert setting.total_bytes == 10 * GIB
    assert (setting.weight_bytes, setting.utilization) == (0, 0)
    assert setting.startup == Startup(0, 0, 0, 0, 0)
    together = plan.model_copy(update={"non_torch_gib": None, "cuda_graph_gib": None, "workspace_gib": 0})
    assert resolve(together).startup == Startup(0, 0, None, None, 0)
    assert (setting.kv_dtype, setting.v_dtype) == ("fp8", "int4")
    assert evaluate(plan).engine.block_size == 64


def test_layers_heads_and_head_dim_override_the_group_that_grows():
    (group,) = resolve(Plan(layers=40, kv_heads=4, head_dim=64)).model.groups
    assert group == LayerGroup(kind="full", layers=40, kv_heads=4, head_dim=64, value_head_dim=64)


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param((FULL, FULL.model_copy(update={"kv_heads": 4})), id="two shapes"),
        pytest.param((LayerGroup(kind="mla", layers=61, kv_heads=1, head_dim=576),), id="MLA"),
        pytest.param((FULL.model_copy(update={"kind": "sliding", "window": 4096}),), id="windows alone"),
        pytest.param((LayerGroup(kind="mamba1", layers=64, state=STATE),), id="states alone"),
    ],
)
def test_an_override_is_ignored_with_a_note_where_no_single_shape_grows(groups):
    model = load_preset("llama-3.1-8b", "model").model_copy(update={"groups": groups})
    setting = resolve(Plan(layers=40, head_dim=64, kv_heads=2), model)
    assert setting.model == model
    assert [note.split(":")[0] for note in setting.notes] == ["layers", "kv_heads", "head_dim"]
    assert all("ignored" in note for note in setting.notes)
    assert setting.weight_bytes == model.weight_bytes


def test_equal_full_layers_in_several_runs_are_overridden_as_one():
    model = load_preset("llama-3.1-8b", "model").model_copy(update={"groups": (FULL, NO_CACHE, FULL)})
    setting = resolve(Plan(kv_heads=2, head_dim=64), model)
    narrow = LayerGroup(kind="full", layers=4, kv_heads=2, head_dim=64, value_head_dim=64)
    assert setting.model.groups == (narrow, NO_CACHE, narrow)
    assert setting.notes == ()


@given(
    st.lists(st.sampled_from((FULL, SLIDING, NO_CACHE, DELTA)), min_size=1, max_size=12).filter(
        lambda groups: FULL in groups
    ),
    st.integers(1, 200),
)
def test_moving_the_layers_of_a_hybrid_moves_its_full_layers_and_keeps_every_other(groups, layers):
    """Worked example: the full layers are spread evenly and stand last, as families have it."""
    model = load_preset("llama-3.1-8b", "model").model_copy(update={"groups": runs(groups)})
    found = resolve(Plan(layers=layers), model).model.groups
    counts = Counter(group.kind for group in expanded(groups))
    assert Counter(group.kind for group in expanded(found)) == counts | {"full": layers}
    others = [group for group in expanded(groups) if group.kind != "full"]
    assert [group for group in expanded(found) if group.kind != "full"] == others
    assert found[-1].kind == "full"
    gaps = [group.layers for group in found if group.kind == "full"]
    if layers <= len(others):
        assert max(gaps) == 1
    total = layers + len(others)
    assert resolve(Plan(layers=layers), model).weight_bytes == round(
        Fraction(model.weight_bytes * total, sum(counts.values()))
    )


# Models that a plan carries itself


def test_groups_replace_the_layers_of_the_preset_and_scale_its_weights():
    preset = load_preset("llama-3.1-8b", "model")
    setting = resolve(Plan(groups="(sliding1024:3x8x128,full:1x8x128)*16"))
    assert layer_total(setting.model) == 64
    assert setting.model.groups == groups_from_text("(sliding1024:3x8x128,full:1x8x128)*16")
    assert setting.weight_bytes == 2 * preset.weight_bytes
    assert setting.model.parameters == 2 * preset.parameters
    assert setting.notes == ()
    assert resolve(Plan(groups="full:16x8x128", weights_gib=3)).weight_bytes == 3 * GIB
    fp8_bytes = preset.parameters + preset.unquantized_parameters
    assert resolve(Plan(groups="full:16x8x128", weight_dtype="fp8")).weight_bytes == fp8_bytes // 2
    doubled = setting.model.unquantized_parameters, setting.model.parameters
    assert doubled == (2 * preset.unquantized_parameters, 2 * preset.parameters)


def test_groups_equal_to_the_presets_own_change_nothing():
    plain, carried = evaluate(Plan()), evaluate(Plan(groups="full:32x8x128"))
    assert (carried.engine, carried.memory, carried.cache) == (plain.engine, plain.memory, plain.cache)


def test_the_layers_of_groups_may_be_overridden_in_turn():
    setting = resolve(Plan(groups="(sliding1024:3x8x128,full:1x8x128)*8", layers=4, kv_heads=2))
    counts = Counter(group.kind for group in expanded(setting.model.groups))
    assert counts == {"sliding": 24, "full": 4}
    assert {group.kv_heads for group in setting.model.groups if group.kind == "full"} == {2}
    assert setting.weight_bytes == load_preset("llama-3.1-8b", "model").weight_bytes * 28 // 32


def test_groups_whose_heads_do_not_divide_the_query_heads_are_noted():
    setting = resolve(Plan(groups="full:32x5x128"))
    assert setting.model.num_attention_heads is None
    assert [note.split(":")[0] for note in setting.notes] == ["kv_heads"]


def test_a_spec_carries_a_whole_model_and_beats_groups_with_a_note():
    model = model_from_hf_config(CONFIGS["gpt-oss-20b"], id="mine")
    carried = Plan(model="no-such-thing", spec=spec_text(model), groups="full:1x1x1")
    setting = resolve(carried)
    assert (setting.model.id, setting.model.groups) == ("mine", model.groups)
    assert [note for note in setting.notes if note.startswith("groups: ignored")] != []
    assert not any(note.startswith("groups") for note in resolve(Plan(spec=spec_text(model))).notes)
    assert evaluate(carried).engine == evaluate(Plan(), model=model).engine


def test_a_model_handed_over_beats_spec_and_groups():
    model = load_preset("llama-3.1-70b", "model")
    plan = Plan(spec=PACKED_MODELS["gpt-oss-20b"], groups="full:1x1x1")
    assert resolve(plan, model).model == model
    assert evaluate(plan, model=model).engine == evaluate(Plan(model="llama-3.1-70b")).engine


def test_a_table_replaces_the_workload_and_says_so_where_another_was_chosen():
    plan = Plan(table=table_text([(3, 10, 100), (1, 50, 200)]))
    setting = resolve(plan)
    assert setting.lengths.mean == pytest.approx((3 * 10 + 50) / 4)
    assert lengths.mean_prompt(setting.lengths) == pytest.approx((3 * 100 + 200) / 4)
    assert setting.notes == ()
    (note,) = resolve(plan.model_copy(update={"workload": "seeded-200"})).notes
    assert note.startswith("workload: ignored")
    (note,) = resolve(plan.model_copy(update={"output_mean": 3.0})).notes
    assert note.startswith("output_mean: ignored")


def test_kv_heads_that_do_not_divide_the_query_heads_are_noted():
    setting = resolve(Plan(kv_heads=5))
    assert setting.model.num_attention_heads is None
    assert [note.split(":")[0] for note in setting.notes] == ["kv_heads"]


def test_weights_scale_with_the_layers_unless_given():
    weight_bytes = load_preset("llama-3.1-8b", "model").weight_bytes
    assert resolve(Plan(layers=16)).weight_bytes == weight_bytes // 2
    assert resolve(Plan(layers=64)).weight_bytes == weight_bytes * 2
    assert resolve(Plan(layers=16, weights_gib=3.0)).weight_bytes == 3 * GIB


@pytest.mark.parametrize(
    ("dtype", "bits", "kept_bits"),
    [
        ("fp32", 32, 32),
        ("bf16", 16, 16),
        ("fp16", 16, 16),
        ("fp8", 8, 16),
        ("int8", 8, 16),
        ("int4", 4 + (16 + 4) / 128, 16),  # a scale and a zero point for 128 weights
    ],
)
def test_weight_dtype_sets_the_bytes_of_a_parameter(dtype, bits, kept_bits):
    """Llama 3.1 70B: the embedding, the head and the norms of 80 layers and at the end stay in 16 bits."""
    kept = 2 * 128_256 * 8192 + 161 * 8192
    matrices = load_preset("llama-3.1-70b", "model").parameters - kept
    plan = Plan(model="llama-3.1-70b", weight_dtype=dtype)
    expected = (matrices * bits + kept * kept_bits) / 8
    assert resolve(plan).weight_bytes == expected
    assert resolve(plan.model_copy(update={"layers": 40})).weight_bytes == expected / 2
    assert resolve(plan.model_copy(update={"weights_gib": 1.0})).weight_bytes == GIB
    assert resolve(plan).sources["weight_bytes"].mark == "estimate"


@pytest.mark.parametrize(
    ("memory_gib", "sequences", "tokens"),
    [(70.0, 1024, 8192), (69.999, 256, 2048), (192.0, 1024, 16384), (24.0, 256, 2048)],
)
def test_start_up_is_estimated_by_the_steps_a_device_allows_and_marked_so(memory_gib, sequences, tokens):
    """Worked example: 14.5 bytes for each sequence and entry of the vocabulary, and 1.3 hidden states for each token;
    graphs of all sizes, as 256 sequences and more have, for 32 layers; the band is 0.04 of the device."""
    setting = resolve(Plan(gpu_memory_gib=memory_gib))
    peak = 14.5 * sequences * 128_256 + 1.3 * tokens * 4096 * 2
    assert setting.startup.activation_bytes == pytest.approx(peak, abs=1)
    assert setting.startup.workspace_bytes == pytest.approx((0.27 + 0.3 + 0.015 * 32) * GIB, abs=1)
    assert setting.startup.band_bytes == pytest.approx(0.04 * memory_gib * GIB, abs=1)
    assert setting.sources["activation_bytes"].mark == setting.sources["workspace_bytes"].mark == "estimate"
    given = resolve(Plan(gpu_memory_gib=memory_gib, activation_gib=5, workspace_gib=0.5))
    assert given.startup == Startup(5 * GIB, GIB // 2, None, None, 0)
    assert given.sources["activation_bytes"].mark == given.sources["workspace_bytes"].mark == ""


@pytest.mark.parametrize(
    ("fields", "sequences", "tokens"),
    [
        ({"gpu": "h100-sxm"}, 1024, 8192),
        ({"gpu": "h100-sxm", "usage": "llm_class"}, 1024, 16384),
        ({"gpu": "a100-80-sxm"}, 256, 2048),
        ({"gpu": "a100-80-sxm", "usage": "llm_class"}, 256, 8192),
        ({"gpu": "b200"}, 1024, 16384),
        ({"gpu": "b200", "usage": "llm_class"}, 1024, 16384),
        ({"gpu": "l4"}, 256, 2048),
        ({"gpu": "h100-sxm", "gpu_memory_gib": 69.0}, 256, 2048),
        ({"gpu": "l4", "gpu_memory_gib": 70.0}, 1024, 8192),
        ({"max_num_batched_tokens": 100}, 100, 100),
        ({"max_num_batched_tokens": 100_000}, 1024, 100_000),
        ({"max_num_seqs": 2, "context": 100}, 2, 200),
        ({"max_num_seqs": 5, "max_num_batched_tokens": 3}, 5, 3),
        ({"context": 1}, 1024, 1024),
    ],
)
def test_the_scheduler_defaults_follow_device_and_usage_and_cap_each_other(fields, sequences, tokens):
    setting = resolve(Plan(**fields))
    assert (setting.max_num_seqs, setting.max_num_batched_tokens) == (sequences, tokens)


@pytest.mark.parametrize(
    ("dtype", "kv_cache_dtype", "expected"),
    [("bf16", None, "bf16"), ("fp16", None, "fp16"), ("fp32", None, "bf16"), ("bf16", "fp8", "fp8")],
)
def test_an_automatic_cache_dtype_follows_the_checkpoint(dtype, kv_cache_dtype, expected):
    base = load_preset("llama-3.1-8b", "model")
    model = base.model_copy(update={"dtype": dtype, "kv_cache_dtype": kv_cache_dtype})
    assert resolve(Plan(), model).kv_dtype == resolve(Plan(), model).v_dtype == expected
    assert resolve(Plan(kv_dtype="bf16"), model).kv_dtype == "bf16"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"context": 131_073}, ["context: 131,073"]),
        ({"context": 131_072}, []),
        ({"prompt_mean": 100.0}, ["prompt_mean: ignored"]),
        (
            {"prompt_mean": 100.0, "output_mean": 3.0, "output_dist": "fixed"},
            ["prompt_mean", "output_mean", "output_d"],
        ),
        ({"prompt_mean": 100.0, "workload": "auto"}, []),
        ({"kv_dtype": "int4"}, ["kv_dtype: int4 is a plain width"]),
        ({"kv_dtype": "int8"}, ["kv_dtype: int8 is a plain width"]),
        ({"kv_dtype": "fp32"}, ["kv_dtype: fp32 is a plain width"]),
        ({"kv_dtype": "fp8_per_token_head"}, []),
        ({"v_dtype": "fp8"}, ["v_dtype: fp8"]),
        ({"kv_dtype": "fp8", "v_dtype": "fp8"}, []),
        ({"block_size": 24}, ["block_size: 24"]),
        ({"block_size": 32}, []),
    ],
)
def test_what_is_ignored_or_unusual_is_noted_and_nothing_else(fields, said):
    notes = resolve(Plan(**fields)).notes
    assert len(notes) == len(said)
    assert all(note.startswith(start) for note, start in zip(notes, said, strict=True))


def test_lengths_without_a_named_workload_are_those_of_the_plan():
    outputs = resolve(Plan(workload="auto", prompt_mean=300.0, output_mean=40.0, output_dist="fixed")).lengths
    assert outputs.mean == 40
    assert lengths.mean_prompt(outputs) == pytest.approx(300)
    assert resolve(Plan(workload="auto", output_mean=40.0)).lengths.expected_max(2) == pytest.approx(60)
    uniform = resolve(Plan(workload="auto", output_mean=40.0, output_dist="uniform")).lengths
    assert (float(uniform.quantile(0)), float(uniform.quantile(1)), uniform.mean) == (1, 79, 40)


@pytest.mark.parametrize("field", ["model", "gpu", "workload"])
def test_an_id_that_no_preset_has_cannot_be_resolved(field):
    with pytest.raises(ValueError, match=f"^{field}: no preset named 'no-such-thing'; nearest: "):
        resolve(Plan(**{field: "no-such-thing"}))


@given(known_plans())
def test_nothing_is_left_open_but_what_means_that_there_is_none(plan):
    concrete = catalog.concrete(resolve(plan))
    setting = resolve(plan)
    open_fields = {name for name, value in concrete.items() if value is None}
    assert concrete.keys() == Plan.model_fields.keys()
    later = {"block_size", "batch", "step_s"}
    none = {"kv_cache_memory_bytes", "tenant_quota_fraction", "max_tokens", "groups", "spec", "table", "spec_method"}
    none |= {"engine_version", "mem_fraction_static", "arrival_rate", "arrival_cv"}
    none |= {"prefix_hit_rate", "acceptance_rate", "price_date"}
    together = set() if plan.workspace_gib is None else {"non_torch_gib", "cuda_graph_gib"}
    of_full_layers = set() if has_full_layers(setting.model) else {"layers", "kv_heads", "head_dim"}
    assert open_fields <= later | none | {"mamba_ssm_cache_dtype"} | of_full_layers | together
    given_values = {name: value for name, value in plan if value is not None and name != "kv_dtype"}
    unheard = {note.split(":")[0] for note in setting.notes if ": ignored, " in note}
    unheard |= {"v_dtype"} if setting.model.model_type == "falcon" else set()
    in_gib = {"gpu_memory_gib", "weights_gib", "activation_gib", "workspace_gib", "non_torch_gib", "cuda_graph_gib"}
    rounded = in_gib - unheard
    assert all(concrete[name] == value for name, value in given_values.items() if name not in rounded | unheard)
    assert all(
        concrete[name] == pytest.approx(given_values[name], abs=1 / GIB) for name in rounded & given_values.keys()
    )


@given(known_plans())
def test_what_the_plan_sets_itself_is_the_users_own_number(plan):
    sources = resolve(plan).sources
    for field, number in {"weights_gib": "weight_bytes", "gpu_memory_gib": "total_bytes"}.items():
        assert (sources[number].text == "set in this plan") == (getattr(plan, field) is not None)


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"enforce_eager": True, "cuda_graph_gib": 2.0}, ["cuda_graph_gib: ignored, as enforce_eager is given"]),
        ({"workspace_gib": 0.0, "non_torch_gib": 0.0}, ["non_torch_gib: ignored, as workspace_gib is given"]),
        (
            {"kv_cache_memory_bytes": 2**36, "mem_fraction_static": 0.9, "gpu_memory_utilization": 0.9},
            [
                "gpu_memory_utilization: ignored, as kv_cache_memory_bytes is given",
                "mem_fraction_static: ignored, as kv_cache_memory_bytes is given",
            ],
        ),
        ({"enforce_eager": False, "cuda_graph_gib": 2.0}, []),
    ],
)
def test_what_another_field_replaces_is_said_to_be_ignored(fields, ignored):
    notes = resolve(Plan(**fields)).notes
    assert [note for note in notes if ": ignored, " in note] == ignored
    assert any("SGLang" in note for note in notes) is False
