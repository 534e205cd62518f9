"""The only input: its bounds, its words, its text form and what it says of a bad value."""

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from strategies import FIELDS, PACKED_MODELS, plans

from kvplan import Plan
from kvplan.plan import KvDtype, from_text, to_text, version_number
from kvplan.specs import problems
from kvplan.texts import table_text
from kvplan.units import DTYPES

BOUNDS = {
    "layers": (1, 4096),
    "kv_heads": (1, 4096),
    "head_dim": (1, 65536),
    "weights_gib": (0.0, 2.0**20),
    "gpu_memory_gib": (2.0**-30, 2.0**20),
    "tp": (1, 64),
    "pp": (1, 64),
    "dcp": (1, 64),
    "gpu_memory_utilization": (0.0, 1.0),
    "mem_fraction_static": (0.0, 1.0),
    "activation_gib": (0.0, 2.0**20),
    "non_torch_gib": (0.0, 2.0**20),
    "cuda_graph_gib": (0.0, 2.0**20),
    "workspace_gib": (0.0, 2.0**20),
    "allocator_overhead_fraction": (0.0, 1.0),
    "kv_cache_memory_bytes": (0, 2**50),
    "context": (1, 2**24),
    "block_size": (1, 65536),
    "max_num_seqs": (1, 2**20),
    "max_num_batched_tokens": (1, 2**24),
    "spec_tokens": (0, 64),
    "shared_prefix_tokens": (0, 2**24),
    "tenant_quota_fraction": (0.0, 1.0),
    "max_tokens": (1, 2**24),
    "prompt_mean": (1.0, 2.0**24),
    "output_mean": (1.0, 2.0**24),
    "batch": (1, 2**20),
    "arrival_rate": (0.0, 2.0**24),
    "arrival_cv": (0.0, 2.0**24),
    "step_s": (1e-6, 3600.0),
    "dp": (1, 2**20),
    "prefix_hit_rate": (0.0, 1.0),
    "acceptance_rate": (0.0, 1.0),
    "bandwidth_efficiency": (0.01, 1.0),
    "compute_efficiency": (0.01, 1.0),
    "step_overhead_s": (0.0, 3600.0),
    "ttft_s": (1e-6, 3600.0),
    "tpot_s": (1e-6, 3600.0),
    "peak_to_mean": (1.0, 1000.0),
    "spare_replicas": (0, 2**20),
    "gpu_hour_usd": (0.0, 2.0**24),
}
WORDS = {
    "weight_dtype": ("bf16", "fp16", "fp32", "fp8", "int8", "int4", "nvfp4", "mxfp4"),
    "kv_dtype": get_args(KvDtype),
    "v_dtype": tuple(DTYPES),
    "usage": ("server", "llm_class"),
    "admission": ("reserve", "on_demand"),
    "output_dist": ("exponential", "uniform", "fixed"),
    "mamba_ssm_cache_dtype": ("bf16", "fp16", "fp32"),
    "spec_method": ("ngram", "suffix", "mtp", "eagle3"),
}
FLAGS = (
    "enable_expert_parallel",
    "enforce_eager",
    "async_scheduling",
    "enable_prefix_caching",
    "disable_hybrid_kv_cache_manager",
)
TEXTS = {
    "groups": "(sliding1024:5x16x128,full:1x16x128)*10",
    "spec": PACKED_MODELS["Kimi-K3"],
    "table": table_text([(9, 40, 300), (1, 700, 20)]),
    "engine_version": "v0.29.1rc1.dev339+g1a2b3c4",
    "price_date": "2026-11",
}
"""A readable value of each field that holds a text of its own language."""
DEFAULTS = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "tp": 1,
    "pp": 1,
    "dp": 1,
    "dcp": 1,
    "enable_expert_parallel": False,
    "enforce_eager": False,
    "allocator_overhead_fraction": 0.0,
    "context": 8192,
    "kv_dtype": "auto",
    "usage": "server",
    "async_scheduling": True,
    "enable_prefix_caching": True,
    "disable_hybrid_kv_cache_manager": False,
    "spec_tokens": 0,
    "shared_prefix_tokens": 0,
    "admission": "reserve",
    "workload": "azure-conversation",
    "prompt_mean": 1024.0,
    "output_mean": 256.0,
    "output_dist": "exponential",
    "spare_replicas": 1,
}


def complaint(**fields):
    """What a plan of these fields is refused for: field -> rule and value."""
    with pytest.raises(ValidationError) as caught:
        Plan(**fields)
    return problems(caught.value)


def test_the_property_tests_draw_every_field():
    assert set(FIELDS) == set(Plan.model_fields)


def test_every_field_has_a_bound_a_list_of_words_or_a_language():
    languages = TEXTS.keys() | {"model", "gpu", "workload"}
    assert BOUNDS.keys() | WORDS.keys() | set(FLAGS) | languages == Plan.model_fields.keys()


def test_a_plan_without_arguments_has_the_documented_defaults_and_leaves_the_rest_open():
    assert {name: value for name, value in Plan() if value is not None} == DEFAULTS


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_may_reach_its_bounds_and_not_pass_them(name):
    least, most = BOUNDS[name]
    assert getattr(Plan(**{name: least}), name) == least
    assert getattr(Plan(**{name: most}), name) == most
    if isinstance(least, int):
        below, above = least - 1, most + 1
    else:
        below, above = math.nextafter(least, -math.inf), math.nextafter(most, math.inf)
    assert list(complaint(**{name: below})) == [name]
    assert list(complaint(**{name: above})) == [name]


@pytest.mark.parametrize("name", WORDS)
def test_a_choice_takes_its_words_and_no_other(name):
    for word in WORDS[name]:
        assert getattr(Plan(**{name: word}), name) == word
    assert list(complaint(**{name: "something else"})) == [name]
    assert list(complaint(**{name: WORDS[name][0].upper()})) == [name]


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_true_or_false_in_the_words_of_text_too(name):
    for value in (True, False):
        assert getattr(Plan(**{name: value}), name) is value
        assert from_text({name: str(value).lower()}, Plan(**{name: not value})) == (Plan(**{name: value}), {})
        assert to_text(Plan(**{name: value}))[name] == str(value).lower()
    for value in ("auto", "maybe", "", None, 2):
        assert list(complaint(**{name: value})) == [name]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_kept_as_it_was_written_and_an_unreadable_one_is_refused(name):
    assert getattr(Plan(**{name: TEXTS[name]}), name) == TEXTS[name]
    assert from_text({name: TEXTS[name]}) == (Plan(**{name: TEXTS[name]}), {})
    for text in ("", "nonsense", "x" * 100_000):
        (field, reason), *others = complaint(**{name: text}).items()
        assert (field, others) == (name, [])
        assert reason.strip()
        assert not reason.startswith(f"{name}:")
        assert len(reason) < 300
        assert "\n" not in reason
    assert list(complaint(**{name: 7})) == [name]


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("0.19", (0, 19)),
        ("v0.19.1", (0, 19)),
        ("0.6.3.post1", (0, 6)),
        ("1.0rc2", (1, 0)),
        ("v0.29.1rc1.dev339+g1a2b3c4", (0, 29)),
        ("9999.9999", (9999, 9999)),
    ],
)
def test_a_version_is_a_major_and_a_minor_number_whatever_follows(version, number):
    assert Plan(engine_version=version).engine_version == version
    assert version_number(version) == number


@pytest.mark.parametrize(
    "version",
    ["1", "v1", "0.x", ".19", "0.", "vv0.19", "0.19 ", " 0.19", "0.19\n", "-1.2", "10000.1", "0.1" + 41 * "x"],
)
def test_what_names_no_version_is_refused(version):
    assert list(complaint(engine_version=version)) == ["engine_version"]
    assert list(from_text({"engine_version": version})[1]) == ["engine_version"]


@pytest.mark.parametrize("name", ["model", "gpu", "workload"])
def test_an_id_has_one_to_200_characters_and_need_not_exist(name):
    assert getattr(Plan(**{name: "x" * 200}), name) == "x" * 200
    assert list(complaint(**{name: ""})) == [name]
    assert list(complaint(**{name: "x" * 201})) == [name]


@pytest.mark.parametrize(
    ("spelling", "word"),
    [("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32"), ("fp8_e4m3", "fp8")],
)
@pytest.mark.parametrize("name", ["kv_dtype", "v_dtype", "weight_dtype"])
def test_other_spellings_of_a_dtype_become_the_projects_own(name, spelling, word):
    assert getattr(Plan(**{name: spelling}), name) == word
    plan, dropped = from_text({name: spelling})
    assert getattr(plan, name) == word
    assert dropped == {}


def test_the_dtype_of_a_state_has_the_same_other_spellings():
    assert Plan(mamba_ssm_cache_dtype="float32").mamba_ssm_cache_dtype == "fp32"
    assert list(complaint(mamba_ssm_cache_dtype="fp8")) == ["mamba_ssm_cache_dtype"]


def test_cache_dtypes_are_the_widths_the_project_knows_and_auto():
    assert set(get_args(KvDtype)) == set(DTYPES) | {"auto"}


def test_a_value_dtype_is_never_auto():
    assert list(complaint(v_dtype="auto")) == ["v_dtype"]
    assert from_text({"v_dtype": "auto"}, Plan(v_dtype="fp8")) == (Plan(), {})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_not_a_finite_number_is_refused(name, value):
    assert list(complaint(**{name: value})) == [name]
    plan, dropped = from_text({name: str(value)})
    assert plan == Plan()
    assert list(dropped) == [name]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_boolean_is_not_a_number(name, value):
    message = complaint(**{name: value})
    assert list(message) == [name]
    assert str(value) in message[name]


@pytest.mark.parametrize("name", [name for name, bounds in BOUNDS.items() if isinstance(bounds[0], int)])
def test_a_count_is_whole(name):
    assert list(complaint(**{name: 2.5})) == [name]
    assert list(from_text({name: "2.5"})[1]) == [name]


def test_a_field_that_no_plan_has_is_refused_by_name():
    assert list(complaint(colour="red")) == ["colour"]
    assert from_text({"colour": "red"}) == (Plan(), {"colour": "no field of a plan"})


def test_a_plan_cannot_be_changed():
    plan = Plan()
    with pytest.raises(ValidationError, match="frozen"):
        plan.tp = 2
    assert plan == Plan()


def test_equal_plans_are_one_key_of_a_dictionary():
    assert {Plan(tp=2): 1}[Plan(tp=2)] == 1
    assert Plan(tp=2) != Plan(tp=4)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("context", 0, "greater than or equal to 1"),
        ("context", 2**24 + 1, "less than or equal to 16777216"),
        ("tp", 65, "less than or equal to 64"),
        ("gpu_memory_gib", 0.0, "greater than or equal to 0.00000000093"),
        ("gpu_memory_utilization", 1.5, "less than or equal to 1"),
        ("kv_dtype", "fp7", "'auto', 'bf16'"),
        ("admission", "lottery", "'reserve' or 'on_demand'"),
        ("tp", "many", "valid integer"),
    ],
)
def test_a_message_names_field_rule_and_value(name, value, rule):
    message = complaint(**{name: value})
    assert list(message) == [name]
    assert rule in message[name]
    assert message[name].endswith(f"got {value!r}")


def test_every_bad_field_is_named_at_once():
    assert set(complaint(tp=0, context=0, usage="desk")) == {"tp", "context", "usage"}


def test_a_long_value_does_not_flood_its_message():
    assert len(complaint(kv_dtype="z" * 100_000)["kv_dtype"]) < 300


@pytest.mark.parametrize("name", [name for name, field in Plan.model_fields.items() if field.default is None])
def test_auto_in_text_takes_a_value_back(name):
    value = WORDS[name][0] if name in WORDS else TEXTS[name] if name in TEXTS else BOUNDS[name][1]
    assert from_text({name: "auto"}, Plan(**{name: value})) == (Plan(), {})
    assert to_text(Plan())[name] == "auto"


def test_auto_is_a_word_of_kv_dtype_and_of_workload():
    plan, dropped = from_text({"kv_dtype": "auto", "workload": "auto"}, Plan(kv_dtype="fp8", workload="seeded-200"))
    assert (plan.kv_dtype, plan.workload, dropped) == ("auto", "auto", {})
    assert (to_text(plan)["kv_dtype"], to_text(plan)["workload"]) == ("auto", "auto")


def test_auto_for_a_number_that_must_be_there_is_dropped():
    plan, dropped = from_text({"tp": "auto", "context": "2048"}, Plan(tp=4))
    assert plan == Plan(tp=4, context=2048)
    assert list(dropped) == ["tp"]


@given(plans())
def test_any_plan_survives_its_text(plan):
    assert from_text(to_text(plan)) == (plan, {})


@given(plans(), plans())
def test_the_text_of_a_plan_replaces_every_field_of_another(plan, base):
    assert from_text(to_text(plan), base) == (plan, {})


@given(plans())
def test_any_plan_survives_json(plan):
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(plans())
def test_text_is_text_and_names_every_field_in_order(plan):
    text = to_text(plan)
    assert list(text) == list(Plan.model_fields)
    assert all(isinstance(value, str) for value in text.values())


def test_whole_numbers_are_written_without_a_decimal_point():
    text = to_text(Plan(output_mean=256.0, weights_gib=14.5, gpu_memory_utilization=1.0, prompt_mean=2.0**24))
    assert text["output_mean"] == "256"
    assert text["weights_gib"] == "14.5"
    assert text["gpu_memory_utilization"] == "1"
    assert text["prompt_mean"] == "16777216"


@given(
    st.dictionaries(
        st.sampled_from([*Plan.model_fields, "colour", ""]),
        st.text(max_size=20) | st.sampled_from(["auto", "1", "0", "-1", "1e9", "nan", "true", "fp8", "0.5"]),
    ),
    plans(),
)
def test_good_fields_are_taken_and_every_other_is_named(text, base):
    plan, dropped = from_text(text, base)
    kept = {name: value for name, value in text.items() if name not in dropped}
    untouched = Plan.model_fields.keys() - kept
    assert dropped.keys() <= text.keys()
    assert plan == from_text(kept, base)[0]
    assert all(getattr(plan, name) == getattr(base, name) for name in untouched)
    assert all(reason for reason in dropped.values())
