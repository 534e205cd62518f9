"""Layers, models and workload tables as one word of a link: there and back, short, and safe to open."""

import base64
import json
import time
import zlib
from collections import Counter
from functools import cache
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONFIGS, PACKED_MODELS, group_texts

from kvplan import Plan, decode_link, encode_link, evaluate, load_preset, model_from_hf_config, presets
from kvplan.lengths import from_table
from kvplan.specs import SOURCED, LayerGroup, LayerState, ModelSpec, expanded, runs
from kvplan.texts import (
    groups_from_text,
    groups_text,
    spec_from_text,
    spec_text,
    table_from_text,
    table_text,
)

ALPHABET = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
FULL = LayerGroup(kind="full", layers=1, kv_heads=16, head_dim=128, value_head_dim=128)
SLIDING = FULL.model_copy(update={"kind": "sliding", "layers": 5, "window": 1024})


@cache
def spec_of(model):
    return model_from_hf_config(CONFIGS[model], id=model)


def packed(data):
    """Data as a link carries it, whatever it holds."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(zlib.compress(raw, 9)).decode().rstrip("=")


def bomb(size):
    """A short word that inflates to `size` zeros."""
    return base64.urlsafe_b64encode(zlib.compress(b"0" * size, 9)).decode().rstrip("=")


def refused(parse, text):
    """The one line with which a text is refused, within a second."""
    start = time.perf_counter()
    with pytest.raises(ValueError, match=": ") as caught:
        parse(text)
    assert time.perf_counter() - start < 1
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 300
    return message


# Layers


@st.composite
def plain_groups(draw):
    """A run of plain layers with anything a plan may ask of them."""
    kind = draw(st.sampled_from(("full", "sliding", "chunked")))
    return LayerGroup(
        kind=kind,
        layers=draw(st.integers(1, 60)),
        kv_heads=draw(st.integers(1, 4096)),
        head_dim=draw(st.integers(1, 65536)),
        value_head_dim=draw(st.integers(1, 65536)),
        window=None if kind == "full" else draw(st.integers(1, 2**24)),
    )


@settings(max_examples=300)
@given(st.lists(plain_groups(), min_size=1, max_size=6), st.integers(1, 8))
def test_plain_layers_survive_their_text(groups, times):
    layers = runs(expanded(groups) * times)
    assert groups_from_text(groups_text(layers)) == layers


@given(group_texts())
def test_a_text_that_was_read_and_written_again_means_the_same(text):
    groups = groups_from_text(text)
    assert groups_from_text(groups_text(groups)) == groups


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("full:32x8x128", (FULL.model_copy(update={"layers": 32, "kv_heads": 8}),)),
        ("full:1x16x128,full:2x16x128", (FULL.model_copy(update={"layers": 3}),)),
        ("sliding1024:5x16x128,full:1x16x128", (SLIDING, FULL)),
        ("(sliding1024:5x16x128,full:1x16x128)*2", (SLIDING, FULL, SLIDING, FULL)),
        ("(full:1x16x128)*4", (FULL.model_copy(update={"layers": 4}),)),
        ("(sliding1024:5x16x128,full:1x16x128)*1,sliding1024:5x16x128", (SLIDING, FULL, SLIDING)),
        (" sliding1024:5x16x128 , full:1x16x128 ", (SLIDING, FULL)),
        ("full:1x16x128/64", (FULL.model_copy(update={"value_head_dim": 64}),)),
        ("full:1x16x128/128", (FULL,)),
        ("chunked8192:5x16x128", (SLIDING.model_copy(update={"kind": "chunked", "window": 8192}),)),
    ],
)
def test_a_text_names_kind_window_layers_heads_and_widths(text, groups):
    """Worked example: `kind[window]:layers x kv_heads x head_dim[/value_dim]`, runs in order."""
    assert groups_from_text(text) == groups


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("gemma-3-27b", "(sliding1024:5x16x128,full:1x16x128)*10,sliding1024:2x16x128"),
        ("gpt-oss-20b", "(sliding128:1x8x64,full:1x8x64)*12"),
        ("gpt-oss-120b", "(sliding128:1x8x64,full:1x8x64)*18"),
        ("llama-3.1-8b", "full:32x8x128"),
    ],
)
def test_the_layers_of_a_shipped_model_are_readable_as_text(model, text):
    """Hugging Face configs: each pattern of windows and full layers."""
    spec = load_preset(model, "model")
    assert groups_from_text(text) == spec.groups
    assert groups_from_text(groups_text(spec.groups)) == spec.groups
    if model != "gemma-3-27b":
        assert groups_text(spec.groups) == text


def test_the_shortest_pattern_is_the_one_that_is_written():
    assert groups_text((SLIDING, FULL) * 10) == "(sliding1024:5x16x128,full:1x16x128)*10"
    assert groups_text((SLIDING, FULL)) == "sliding1024:5x16x128,full:1x16x128"


@pytest.mark.parametrize(
    "group",
    [
        LayerGroup(kind="mla", layers=61, kv_heads=1, head_dim=576),
        LayerGroup(kind="none", layers=2),
        LayerGroup(kind="kda", state=LayerState(conv_kernel=4, conv_channels=8)),
        FULL.model_copy(update={"index_dim": 128}),
    ],
    ids=["MLA", "none", "state", "indexer"],
)
def test_layers_that_text_cannot_name_have_none(group):
    assert groups_text((FULL, group)) is None


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "full", "full:", "full:32", "full:32x8", "full:32x8x", "full:32x8x128x1", "full:-1x8x128",
        "full:0x8x128", "full:32x0x128", "full:32x8x0", "full:32x8x128/0", "full:4097x8x128", "full:32x4097x128",
        "full:32x8x65537", "full1024:32x8x128", "sliding:32x8x128", "sliding0:32x8x128", "chunked:32x8x128",
        "sliding16777217:32x8x128", "mla:61x1x576", "mamba:32x8x128", "FULL:32x8x128", "full:32x8x128,",
        ",full:32x8x128", "(full:32x8x128)", "(full:32x8x128)*", "(full:32x8x128)*0", "(full:32x8x128)*-1",
        "(full:32x8x128)*2.5", "((full:1x8x128)*2)*2", "(full:1x8x128)*2*2", "full:32x8x128)*2", "()*3",
        "(full:1x8x128)*4097", "(full:4096x8x128)*2", "full:٣x8x128", "full:1_0x8x128", "full:1e1x8x128",
        "full:32x8x128;drop table", "\x00", "full:" + "9" * 4000 + "x8x128",
    ],
    ids=lambda text: repr(text)[:40],
)  # fmt: skip
def test_a_text_that_names_no_layers_is_refused_in_one_line(text):
    assert refused(groups_from_text, text).startswith("groups: ")
    assert Plan().model_copy() == decode_link({"groups": text})[0]


@pytest.mark.parametrize(
    "text",
    [
        "(full:1x8x128)*999999999",
        "(full:1x8x128)*" + "9" * 4000,
        "(full:1x8x128,sliding5:1x8x128)*999999",
        "(" + ",".join(["full:1x8x128"] * 200) + ")*999999",
        ",".join(["(full:1x8x128)*4096"] * 150),
        "full:4096x8x128," * 200 + "full:1x8x128",
        "(" * 4000,
        "(full:1x8x128)*9" * 250,
        "x" * 4097,
        "full:1x8x128," * 100_000,
    ],
    ids=lambda text: f"{text[:30]}, {len(text)} characters",
)
def test_a_text_that_asks_for_endless_layers_is_refused_at_once(text):
    assert refused(groups_from_text, text).startswith("groups: ")


@given(st.text(max_size=60) | st.text("fulsidngchk0123456789:x/(),*", max_size=60))
def test_any_text_names_layers_or_is_refused(text):
    try:
        groups = groups_from_text(text)
    except ValueError as error:
        message = str(error)
    else:
        assert sum(group.layers for group in groups) <= 4096
        message = "groups: read"
    assert message.startswith("groups: ")
    assert len(message.splitlines()) == 1


def test_as_many_layers_as_a_plan_may_have_are_read():
    assert sum(group.layers for group in groups_from_text("(sliding8:1x8x128,full:1x8x128)*2048")) == 4096


# Whole models


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_every_architecture_survives_its_text_and_fits_in_a_link(model):
    spec = spec_of(model)
    text = spec_text(spec)
    assert len(text) < 1000
    assert set(text) <= ALPHABET
    again = spec_from_text(text)
    unsaid = {"notes", "sources"}
    assert again.model_dump(exclude=unsaid) == spec.model_dump(exclude=unsaid)
    assert all(source.text for source in again.sources.values())
    assert spec_text(again) == text


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_a_carried_model_says_exactly_what_the_model_says(model):
    spec = spec_of(model)
    for fields in (
        {},
        {"tp": 8, "pp": 2, "kv_dtype": "fp8", "context": 32_768},
        {"spec_method": "mtp", "spec_tokens": 1, "gpu": "b200"},
        {"enable_prefix_caching": False, "async_scheduling": False, "gpu": "a100-80-sxm"},
        {"disable_hybrid_kv_cache_manager": True, "enable_expert_parallel": True, "tp": 4, "dcp": 2},
    ):
        plan = Plan(kv_cache_memory_bytes=2**38, **fields)
        carried, own = evaluate(plan.model_copy(update={"spec": spec_text(spec)})), evaluate(plan, model=spec)
        assert (carried.engine, carried.cache, carried.capacity, carried.memory) == (
            own.engine,
            own.cache,
            own.capacity,
            own.memory,
        )


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_a_link_carries_the_whole_model_and_opens_without_a_word(model):
    plan = Plan(spec=spec_text(spec_of(model)), context=32_768)
    assert quote(plan.spec) == plan.spec
    assert decode_link(encode_link(plan)) == (plan, [])
    assert decode_link(encode_link(plan, full=False)) == (plan, [])


@pytest.mark.parametrize("model", presets("model"))
def test_every_shipped_model_survives_its_text(model):
    spec = load_preset(model, "model")
    again = spec_from_text(spec_text(spec))
    assert again.model_dump(exclude={"notes", "sources"}) == spec.model_dump(exclude={"notes", "sources"})


def test_a_carried_model_has_no_source_but_the_link():
    assert {source.text for source in spec_from_text(PACKED_MODELS["Kimi-K3"]).sources.values()} == {
        "carried by the link, without its sources"
    }


GOOD = spec_of("Meta-Llama-3.1-8B").model_dump(mode="json", exclude_defaults=True, exclude={"notes", "sources"})


def test_the_good_model_below_is_read():
    assert spec_from_text(packed(GOOD)).groups == spec_of("Meta-Llama-3.1-8B").groups


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groups": []}, "groups"),
        ({"groups": None}, "groups"),
        ({"groups": [{"kind": "full"}]}, "kv_heads"),
        ({"groups": [{"kind": "hyper", "layers": 1}]}, "kind"),
        ({"groups": [{"kind": "kda", "layers": 1}]}, "state"),
        ({"groups": [{"kind": "none", "layers": 10**9}]}, "layers"),
        ({"groups": [{"kind": "full", "kv_heads": 10**9, "head_dim": 1, "value_head_dim": 1}]}, "kv_heads"),
        ({"groups": [{"kind": "sliding", "kv_heads": 1, "head_dim": 1, "value_head_dim": 1}]}, "window"),
        ({"colour": "red"}, "colour"),
        ({"id": ""}, "id"),
        ({"dtype": "fp7"}, "dtype"),
        ({"weight_bytes": -1}, "weight_bytes"),
        ({"parameters": "many"}, "parameters"),
        ({"max_position_embeddings": 10**30}, "max_position_embeddings"),
        ({"mtp_layers": 10**6}, "mtp_layers"),
    ],
)
def test_a_damaged_model_is_refused_with_field_and_reason(change, reason):
    message = refused(spec_from_text, packed(GOOD | change))
    assert message.startswith("spec: ")
    assert reason in message


HOSTILE = [
    pytest.param("", id="nothing"),
    pytest.param("nonsense", id="no zlib"),
    pytest.param("ü", id="no ASCII"),
    pytest.param("\x80", id="a control character"),
    pytest.param("\ud800", id="half a character"),
    pytest.param("A B", id="a blank"),
    pytest.param("AA==", id="padding"),
    pytest.param("A", id="one letter"),
    pytest.param("+/+/", id="another alphabet"),
    pytest.param("a\nb", id="two lines"),
    pytest.param(PACKED_MODELS["Kimi-K3"][:-9], id="cut short"),
    pytest.param(PACKED_MODELS["Kimi-K3"][::-1], id="backwards"),
    pytest.param("A" * 4097, id="too long"),
    pytest.param("A" * 10_000_000, id="far too long"),
    pytest.param(bomb(1_000_000), id="a bomb of a megabyte"),
    pytest.param(bomb(2_500_000), id="a larger bomb"),
    pytest.param(packed(b"[" * 60_000), id="deep lists"),
    pytest.param(packed(b'{"a":' * 12_000), id="deep objects"),
    pytest.param(packed(b"9" * 60_000), id="a number of 60,000 digits"),
    pytest.param(packed(b"1e999999999"), id="an infinite number"),
    pytest.param(packed(b"\xff\xfe"), id="no UTF-8"),
    pytest.param(packed(b"{"), id="half an object"),
    pytest.param(packed("text"), id="a text"),
    pytest.param(packed(None), id="null"),
    pytest.param(packed([]), id="an empty list"),
    pytest.param(packed({}), id="an empty object"),
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(("name", "parse"), [("spec", spec_from_text), ("table", table_from_text)])
def test_a_hostile_text_is_refused_in_one_line_and_a_link_leaves_it_out(name, parse, text):
    assert refused(parse, text).startswith(f"{name}: ")
    plan, notes = decode_link({name: text, "tp": "2"})
    assert plan == Plan(tp=2)
    assert [note.split(":")[0] for note in notes] == [name]
    assert len(notes[0].splitlines()) == 1


def test_the_largest_carried_model_is_answered_at_once():
    """4,096 layers of two kinds by turns, the most a plan may hold."""
    groups = [{"kind": "full", "layers": 4096, "kv_heads": 8, "head_dim": 128, "value_head_dim": 128}] * 200
    start = time.perf_counter()
    report = evaluate(Plan(spec=packed(GOOD | {"groups": groups}), pp=3, kv_cache_memory_bytes=2**44))
    assert time.perf_counter() - start < 5
    assert report.engine.refused is None or report.engine.refused


LAYER_KINDS = ("full", "sliding", "chunked", "mla", "mamba1", "mamba2", "gated_deltanet", "kda", "short_conv", "none")


@st.composite
def any_group(draw, kinds):
    """A group of one of these kinds, its sizes sensible or not."""
    kind = draw(st.sampled_from(kinds))
    layers = draw(st.integers(1, 12))
    width = draw(st.sampled_from((64, 128, 192, 512, 576)) | st.integers(1, 2048))
    index = draw(st.sampled_from((0, 0, 64, 128)))
    window = draw(st.sampled_from((1, 128, 4096)) | st.integers(1, 2**24))
    if kind in ("full", "sliding", "chunked"):
        heads = draw(st.sampled_from((1, 2, 4, 8, 96)))
        value = draw(st.just(width) | st.integers(1, 2048))
        limit = None if kind == "full" else window
        found = {"kv_heads": heads, "head_dim": width, "value_head_dim": value, "window": limit, "index_dim": index}
    elif kind == "mla":
        found = {"kv_heads": 1, "head_dim": width, "index_dim": index}
    elif kind == "compressed":
        ratio = draw(st.sampled_from((0, 4, 128)))
        found = {"kv_heads": 1, "head_dim": width, "window": window, "compress_ratio": ratio, "index_dim": index}
    elif kind == "none":
        found = {}
    else:
        state = LayerState(
            conv_kernel=draw(st.integers(2, 8)),
            conv_channels=draw(st.sampled_from((1024, 8192)) | st.integers(64, 10_000)),
            replicated_channels=draw(st.sampled_from((0, 256))),
            recurrent_elements=draw(st.sampled_from((0, 65_536, 524_288)) | st.integers(0, 10**6)),
            recurrent_dtype=draw(st.none() | st.sampled_from(("bf16", "fp32"))),
            groups=draw(st.sampled_from((1, 8))),
        )
        found = {"state": state}
    return LayerGroup(kind=kind, layers=layers, **found)


@st.composite
def any_model(draw):
    """A model of any layers the engine could combine; nobody would train most of them, but a link can carry each."""
    sources = dict.fromkeys(SOURCED, "drawn")
    kinds = draw(st.sampled_from([("compressed",), LAYER_KINDS]))
    caching = draw(any_group([kind for kind in kinds if kind != "none"]))
    groups = draw(st.permutations([caching, *draw(st.lists(any_group((*kinds, "none")), max_size=4))]))
    families = ("llama", "gpt_oss", "deepseek_v4", "mimo_v2_flash", "glm_moe_dsa", "falcon", "gemma4_text")
    return ModelSpec(
        id="drawn",
        name="Drawn",
        model_type=draw(st.none() | st.sampled_from(families)),
        parameters=draw(st.none() | st.integers(1, 10**12)),
        weight_bytes=draw(st.none() | st.integers(1, 10**12)),
        num_attention_heads=draw(st.none() | st.sampled_from((8, 32, 96))),
        max_position_embeddings=draw(st.sampled_from((4096, 131_072))),
        groups=runs(groups),
        mtp_layers=draw(st.integers(0, 2)),
        num_experts=draw(st.sampled_from((0, 8))),
        sources=sources,
    )


@settings(max_examples=300)
@given(
    any_model(),
    st.fixed_dictionaries(
        {},
        optional={
            "tp": st.sampled_from((1, 2, 8, 64)),
            "pp": st.sampled_from((1, 2, 3, 16)),
            "dcp": st.sampled_from((1, 2, 3)),
            "kv_dtype": st.sampled_from(("auto", "fp8", "int4", "fp32", "int8_per_token_head")),
            "gpu": st.sampled_from(("h100-sxm", "b200", "a100-80-sxm")),
            "block_size": st.sampled_from((1, 16, 24, 64, 1000)),
            "spec_method": st.sampled_from(("ngram", "mtp", "eagle3")),
            "spec_tokens": st.sampled_from((0, 1, 7)),
            "enable_prefix_caching": st.booleans(),
            "disable_hybrid_kv_cache_manager": st.booleans(),
            "layers": st.sampled_from((1, 7, 100)),
            "context": st.sampled_from((1, 100, 8192, 2**24)),
            "shared_prefix_tokens": st.sampled_from((0, 1000)),
        },
    ),
)
def test_any_model_a_link_can_carry_has_a_report(model, fields):
    plan = Plan(spec=spec_text(model), kv_cache_memory_bytes=2**40, **fields)
    report = evaluate(plan)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == report.to_dict()
    assert report.setting.model.id == "drawn"
    if report.engine.refused is None:
        assert report.cache.request_bytes_held <= report.cache.request_bytes_booked
        assert report.engine.bytes_per_block > 0
    again = spec_from_text(plan.spec)
    assert again.model_dump(exclude={"sources", "notes"}) == model.model_dump(exclude={"sources", "notes"})


COMPRESSED = LayerGroup(kind="compressed", layers=4, kv_heads=1, head_dim=512, window=128, compress_ratio=128)


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param((LayerGroup(kind="none", layers=4),), id="nothing but layers without a cache"),
        pytest.param((COMPRESSED, FULL), id="compressed and full"),
        pytest.param((COMPRESSED, SLIDING), id="compressed and sliding"),
        pytest.param((COMPRESSED, LayerGroup(kind="mla", layers=2, kv_heads=1, head_dim=576)), id="compressed and MLA"),
        pytest.param(
            (COMPRESSED, LayerGroup(kind="kda", state=LayerState(conv_kernel=4, conv_channels=8))),
            id="compressed and states",
        ),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"tp": 8, "pp": 2}, {"context": 1, "disable_hybrid_kv_cache_manager": True}])
def test_layers_that_nobody_combines_are_named_in_a_link_and_in_a_report(groups, fields):
    """A link can carry them: a note or a sentence, never an exception."""
    model = spec_of("Meta-Llama-3.1-8B").model_copy(update={"groups": groups})
    plan, notes = decode_link({"spec": spec_text(model)})
    assert plan == Plan()
    assert len(notes) == 1
    report = evaluate(Plan(kv_cache_memory_bytes=2**36, **fields), model=model)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == report.to_dict()
    assert report.engine.refused


def test_a_state_of_no_size_is_no_state():
    with pytest.raises(ValueError, match="must keep a row"):
        LayerState(conv_kernel=1, conv_channels=1024)


# Workload tables


@given(
    st.lists(st.tuples(st.integers(1, 2**24), st.integers(1, 2**31), st.integers(0, 2**31)), min_size=1, max_size=60)
)
def test_a_table_of_whole_numbers_survives_its_text(rows):
    text = table_text(rows)
    assert table_from_text(text) == tuple((count, float(output), float(prompt)) for count, output, prompt in rows)
    assert set(text) <= ALPHABET


def test_means_are_carried_rounded_to_whole_tokens():
    assert table_from_text(table_text([(3, 10.4, 99.6), (2, 1.0, 0.2)])) == ((3, 10.0, 100.0), (2, 1.0, 0.0))


def test_a_table_of_ten_bins_and_sixteen_slices_fits_in_a_link():
    """Azure conversation trace, 160 rows of it: an uploaded workload is one parameter of under 1,200 characters."""
    table = load_preset("azure-conversation", "workload").table
    sizes = Counter(output for _, output, _ in table)
    whole_bins = [output for output, slices in sizes.items() if slices == 16]
    chosen = set(whole_bins[:: len(whole_bins) // 10][:10])
    rows = [row for row in table if row[1] in chosen]
    assert len(rows) == 160
    text = table_text(rows)
    assert len(text) < 1200
    plan = Plan(table=text)
    assert decode_link(encode_link(plan, full=False)) == (plan, [])
    carried, own = from_table(table_from_text(text)), from_table(rows)
    assert carried.mean == pytest.approx(own.mean, rel=0.005)
    assert carried.expected_max(64) == pytest.approx(own.expected_max(64), rel=0.005)


@pytest.mark.parametrize(
    "rows",
    [
        [], {}, [[]], [[1, 2]], [[1, 2, 3, 4]], [[0, 1, 1]], [[1, 0, 1]], [[1, 1, -1]], [[-1, 1, 1]], [[1.5, 1, 1]],
        [[1, 1.5, 1]], [["1", 1, 1]], [[True, 1, 1]], [[None, 1, 1]], [[1, 1, 2**31 + 1]], [[10**400, 1, 1]], [1],
        [[2**24 + 1, 1, 1]], [[1, 1, 1]] * 2001, {"rows": [[1, 1, 1]]}, "rows",
    ],
    ids=lambda rows: repr(rows)[:30],
)  # fmt: skip
def test_a_table_that_is_none_is_refused_in_one_line(rows):
    assert refused(table_from_text, packed(rows)).startswith("table: ")


def test_as_many_rows_as_a_table_may_have_are_read():
    assert len(table_from_text(packed([[1, 1, 1]] * 2000))) == 2000
