"""The axes of a map: values to begin with that hold the plan's own, and texts that are read or named as wrong."""

import pytest

from kvplan import Plan, evaluate, load_preset, presets
from kvplan.plan import DEFAULTS
from kvplan.sweep_axes import FIELDS, MOST_VALUES, axis, held_fixed, offered, ready

PLANS = {name: load_preset(name) for name in presets("plan")} | {
    "states alone": Plan(model="falcon-mamba-7b"),
    "hybrid": Plan(model="gemma-3-27b", gpu="l4"),
    "mla": Plan(model="deepseek-v3", tp=16, gpu="h200"),
    "odd numbers": Plan(context=10007, tp=3, pp=5, block_size=544, max_num_seqs=100, batch=900, kv_heads=7, layers=33),
    "beyond": Plan(context=2**24, gpu_memory_gib=500, gpu_memory_utilization=0.333, weight_dtype="nvfp4"),
    "one token": Plan(context=1, kv_dtype="int8_per_token_head", gpu="mi210"),
    "refused": Plan(model="gpt-oss-120b", tp=16),
    "does not fit": Plan(model="llama-3.1-405b"),
}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@each_plan
def test_the_values_to_begin_with_are_few_and_the_plans_own_is_among_them(plan):
    report = evaluate(plan)
    for field in offered(report):
        found = axis(report, field, "")
        assert found.text == ready(report, field)
        assert 2 <= len(found.values) <= MOST_VALUES
        own = plan.model_copy(update={field: found.values[found.own]})
        assert evaluate(own).engine == report.engine


@each_plan
def test_numbers_go_up(plan):
    report = evaluate(plan)
    for field in offered(report):
        values = axis(report, field, "").values
        if not any(isinstance(value, str) or value is None for value in values):
            assert list(values) == sorted(values)


def test_what_moves_nothing_is_not_offered():
    assert offered(evaluate(Plan())) == list(FIELDS)
    assert not {"layers", "kv_heads"} & set(offered(evaluate(Plan(model="falcon-mamba-7b"))))


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        ("context", "1024:8192:x2", (1024, 2048, 4096, 8192)),
        ("tp", " 8, 4 ,8", (8, 4)),
        ("gpu_memory_gib", "auto, 80", (None, 80.0)),
        ("kv_dtype", "auto,bfloat16", ("auto", "bf16")),
        ("model", "meta-llama/Llama-3.1-8B-Instruct,llama-3.1-8b,gpt-3", ("llama-3.1-8b", "gpt-3")),
    ],
)
def test_a_text_is_read_as_the_command_line_reads_it(field, text, values):
    assert axis(evaluate(DEFAULTS), field, text).values == values


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("context", "8192:1024:x2", "context: a range goes up, got 8192:1024:x2"),
        ("tp", "1,many", "tp: Input should be a valid integer"),
        ("kv_dtype", "fp7", "kv_dtype: Input should be"),
        ("context", "1:41:1", "context: an axis has 1 to 40 values, got 41"),
        ("gpu", "h100-sxm,h9000", "gpu: "),
        ("model", "lama-3.1-8b", "llama-3.1-8b"),
        ("tp", ",", "tp: "),
    ],
)
def test_a_text_that_cannot_be_read_names_the_field_the_rule_and_the_value(field, text, words):
    with pytest.raises(ValueError, match=r"^[a-z_]+: ") as error:
        axis(evaluate(DEFAULTS), field, text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_own_value_is_found_by_what_it_is_and_not_by_how_it_is_written():
    report = evaluate(Plan(context=10007))
    assert axis(report, "kv_dtype", "fp8,bf16").own == 1  # open, and bf16 with this model
    assert axis(report, "max_num_seqs", "256,1024").own == 1
    assert axis(report, "gpu_memory_gib", "80,auto").own == 1
    assert axis(report, "context", "1024:8192:x2").own is None


def test_what_the_plan_sets_holds_for_every_model_and_every_gpu():
    plan = Plan(layers=40, gpu_memory_gib=60, context=4096)
    assert held_fixed(plan, "context", "model", "gpu") == {"model": ["layers"], "gpu": ["gpu_memory_gib"]}
    assert held_fixed(plan, "context", "tp") == held_fixed(DEFAULTS, "model", "gpu") == {}
