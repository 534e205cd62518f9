"""Many plans at once: a cell equals the plan evaluated alone, bit for bit, whatever the axes and whoever counts."""

import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import fields
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import FIELDS, SERVED, known_plans

from kvplan import Plan, evaluate, load_preset, presets, sweep
from kvplan.catalog import NUMBERS
from kvplan.sweep import COUNTED, MOST_POINTS, column_names, every_column

module = sys.modules["kvplan.sweep"]
"""The module, as the package's own name is the function."""
KINDS = {
    "full": "llama-3.1-8b",
    "sliding": "gemma-3-27b",
    "chunked": "llama-4-scout-17b-16e",
    "mla": "deepseek-v3",
    "mla and index": "deepseek-v3.2",
    "compressed": "deepseek-v4-flash",
    "mamba1": "falcon-mamba-7b",
    "mamba2": "granite-4.0-h-small",
    "gated_deltanet": "qwen3-next-80b-a3b",
    "kda": "kimi-k3",
    "short_conv": "lfm2-1.2b",
    "full and index": "minimax-m3",
}
"""A model for every kind of layer."""


def leaf(value, path):
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
        if value is None:
            return None
    return value


def plain(value):
    return value.item() if isinstance(value, np.generic) else value


def same(one, other):
    """Equal in value and in type, so that integers stay integers."""
    return one == other and type(one) is type(other)


def assert_cells_equal_plans(found, model=None):
    for index in np.ndindex(*found.shape):
        report = evaluate(found.plan_at(index), model)
        cells = {name: plain(values[index]) for name, values in found.columns.items()}
        alone = {name: leaf(report, name) for name in found.columns}
        assert [name for name in cells if not same(cells[name], alone[name])] == []


@st.composite
def grids(draw, **fixed):
    """A plan and up to three axes, of which at least one is numbers that are counted at once."""
    plan = draw(known_plans(**fixed))
    free = sorted(set(FIELDS) - {"groups", "spec", "table"} - fixed.keys())
    names = draw(st.lists(st.sampled_from(free), max_size=2, unique=True))
    names = dict.fromkeys([*names, draw(st.sampled_from(sorted(NUMBERS)))])
    return plan, {
        name: draw(st.lists(FIELDS[name], min_size=1, max_size=4)) for name in draw(st.permutations([*names]))
    }


# Equal to one by one


def test_there_is_a_model_of_every_kind_of_layer():
    kinds = {kind: {group.kind for group in load_preset(name, "model").groups} for kind, name in KINDS.items()}
    assert [kind for kind, found in kinds.items() if kind.split()[0] not in found] == []


@settings(max_examples=300)
@given(grids(**SERVED))
def test_a_sweep_equals_one_by_one_evaluation(grid):
    plan, axes = grid
    assert_cells_equal_plans(sweep(plan, axes))


@settings(max_examples=100)
@given(grids())
def test_a_sweep_of_plans_that_mostly_cannot_be_served_equals_one_by_one_evaluation(grid):
    plan, axes = grid
    assert_cells_equal_plans(sweep(plan, axes))


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_kind_of_layer_is_swept_as_it_is_evaluated(model, data):
    plan = data.draw(known_plans(**SERVED, model=model, groups=None, spec=None))
    axes = {"context": data.draw(st.lists(FIELDS["context"], min_size=2, max_size=5)), "tp": [1, 2, 8]}
    axes |= {"kv_dtype": ["auto", "fp8"], "gpu_memory_gib": [None, 40.0, 180.0]}
    assert_cells_equal_plans(sweep(plan, axes))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(grid=grids(**SERVED))
def test_small_blocks_give_the_same_grid(grid, monkeypatch):
    plan, axes = grid
    whole = sweep(plan, axes)
    with monkeypatch.context() as patched:
        patched.setattr(module, "BLOCK_POINTS", 2)
        parts = sweep(plan, axes)
    for name, values in whole.columns.items():
        assert values.tolist() == parts.columns[name].tolist(), name


def test_a_thousand_plans_of_every_model_equal_one_by_one_evaluation():
    found = sweep(Plan(), {"model": presets("model"), "context": [2048, 131072], "tp": [1, 2, 8]})
    assert math.prod(found.shape) >= 900
    assert_cells_equal_plans(found)


def test_integers_beyond_a_float_stay_exact():
    plan = Plan(groups="full:4096x4096x65536", block_size=65536, kv_cache_memory_bytes=2**50, kv_dtype="fp32")
    found = sweep(plan, {"context": [1, 2**24 - 1, 2**24]})
    assert found.columns["engine.needed_bytes"].tolist()[-1] > 2**64
    assert_cells_equal_plans(found)


def test_a_model_of_ones_own_is_swept():
    spec = load_preset("qwen3-32b", "model").model_copy(update={"id": "mine"})
    found = sweep(Plan(), {"context": [2048, 8192], "tp": [1, 2]}, model=spec)
    assert found.columns["cache.bytes_per_token"].tolist() == [[262144, 131072]] * 2
    assert_cells_equal_plans(found, spec)


def test_an_unknown_id_is_a_cell_that_does_not_fit():
    found = sweep(Plan(), {"model": ["llama-3.1-8b", "nothing"], "context": [2048, 4096]}, columns=["engine"])
    assert found.columns["engine.fits"].tolist() == [[True, True], [False, False]]
    assert found.columns["engine.refused"][1, 0].startswith("model: no preset named 'nothing'")


# Shape and columns


def test_columns_are_every_number_boolean_and_binding_of_four_parts():
    report = evaluate(Plan())
    wanted = [
        f"{part}.{one.name}"
        for part in COUNTED
        for one in fields(getattr(report, part))
        if (part, one.name) not in {("engine", "groups"), ("engine", "refused")}
    ]
    assert sorted(sweep(Plan(), {"tp": [1]}).columns) == sorted(wanted)
    printed = report.to_dict()
    assert all(leaf(printed, name) is None or not isinstance(leaf(printed, name), (dict, list)) for name in wanted)


def test_arrays_are_shaped_by_the_axes_in_their_order_and_are_read_only():
    found = sweep(Plan(), {"tp": [1, 2], "context": [1024, 2048, 4096], "kv_dtype": ["auto", "fp8", "int8", "int4"]})
    assert {values.shape for values in found.columns.values()} == {(2, 3, 4)} == {found.shape}
    assert not any(values.flags.writeable for values in found.columns.values())


def test_types_are_those_of_numbers_and_undefined_is_none():
    columns = sweep(Plan(), {"context": [8192, 2**24], "tp": [1, 2]}).columns
    kinds = {name: columns[name].dtype.kind for name in ("engine.num_blocks", "engine.max_concurrency", "engine.fits")}
    assert kinds == {"engine.num_blocks": "i", "engine.max_concurrency": "f", "engine.fits": "b"}
    assert columns["engine.suggested_context"][0].tolist() == [None, None]
    assert all(isinstance(length, int) for length in columns["engine.suggested_context"][1].tolist())
    assert columns["capacity.tenant_quota"].tolist() == [[None, None]] * 2
    assert set(columns["capacity.binding"].ravel()) == {"memory", "does_not_fit"}


def test_rows_go_through_the_last_axis_first():
    found = sweep(
        Plan(kv_cache_memory_bytes=2**36), {"tp": [1, 2], "context": [8192, 32768]}, columns=["capacity.batch_ceiling"]
    )
    assert list(found.rows()) == [
        {"tp": 1, "context": 8192, "capacity.batch_ceiling": 64},
        {"tp": 1, "context": 32768, "capacity.batch_ceiling": 16},
        {"tp": 2, "context": 8192, "capacity.batch_ceiling": 128},
        {"tp": 2, "context": 32768, "capacity.batch_ceiling": 32},
    ]


@given(grids())
def test_rows_hold_plain_values_that_json_can_write(grid):
    plan, axes = grid
    found = sweep(plan, axes)
    rows = list(found.rows())
    assert len(rows) == math.prod(found.shape)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    chosen = [tuple(row[name] for name in found.axes) for row in rows]
    assert chosen == list(product(*found.axes.values()))


def test_other_parts_come_plan_by_plan_on_request():
    found = sweep(
        Plan(arrival_rate=50.0),
        {"tp": [1, 2], "context": [4096, 8192]},
        columns=["throughput", "fleet.gpus", "paging.waste_share", "batching.gain"],
    )
    assert {name.partition(".")[0] for name in found.columns} == {"throughput", "fleet", "paging", "batching"}
    assert_cells_equal_plans(found)


def test_no_axes_give_one_plan():
    found = sweep(Plan(), {}, columns=["capacity.batch_ceiling"])
    assert found.shape == ()
    assert list(found.rows()) == [{"capacity.batch_ceiling": evaluate(Plan()).capacity.batch_ceiling}]


@pytest.mark.parametrize(
    ("axes", "columns", "message"),
    [
        ({"contxt": [1]}, None, "contxt: no field of a plan; nearest: context"),
        ({"context": [0]}, None, "context: Input should be greater than or equal to 1, got 0"),
        ({"context": range(1, 5001), "max_num_seqs": range(1, 5001)}, None,
         f"axes: a sweep has at most {MOST_POINTS:,} plans, got 25,000,000"),
        ({"tp": [1]}, ["capacity.batch"], "columns: no 'capacity.batch' in a report; nearest: capacity.batch_ceiling"),
    ],
)  # fmt: skip
def test_what_cannot_be_swept_is_named(axes, columns, message):
    with pytest.raises(ValueError, match=r".") as error:
        sweep(Plan(), axes, columns=columns)
    assert str(error.value).startswith(message)


def test_columns_are_asked_for_by_path_or_by_part():
    assert column_names(["fleet.gpus", "fleet"])[0] == "fleet.gpus"
    assert len(column_names(["fleet.gpus", "fleet"])) == len(column_names(["fleet"]))
    assert set(column_names()) < set(every_column())


# Who counts


AXES = {"context": [4096, 8192, 32768], "tp": [1, 2, 4], "kv_dtype": ["auto", "fp8"]}


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_gives_the_same_grid(executor, monkeypatch):
    monkeypatch.setattr(module, "BLOCKS_A_TASK", 2)
    columns = ["capacity", "throughput.tokens_per_s"]
    alone = sweep(Plan(), AXES, columns=columns)
    with executor(2) as workers:
        shared = sweep(Plan(), AXES, workers, columns=columns)
    assert list(shared.rows()) == list(alone.rows())


SMALL = Plan(workload="auto", output_mean=20, output_dist="fixed", step_s=0.05, max_num_seqs=4, context=2048)
SIMULATED = ["simulation.on_demand.steps", "simulation.reserve.ttft_s.p95", "capacity.batch_ceiling"]


def test_simulations_are_swept_and_equal_the_command_that_runs_one():
    from kvplan import pool

    found = sweep(SMALL, {"max_num_seqs": [2, 4], "arrival_rate": [None, 2.0]}, columns=SIMULATED)
    for index in np.ndindex(2, 2):
        report = evaluate(found.plan_at(index))
        requests = pool.requests_of(report.setting, pool.usual_number(report))
        runs = pool.runs(report, requests, pool.arrivals_of(report.setting))
        assert found.columns["simulation.on_demand.steps"][index] == runs.on_demand.outcome.steps
        assert found.columns["simulation.reserve.ttft_s.p95"][index] == runs.reserve.ttft_s[1]


def test_simulations_of_plans_that_cannot_be_served_are_undefined():
    found = sweep(SMALL, {"model": ["llama-3.1-8b", "nothing"], "tp": [1, 64]}, columns=SIMULATED)
    assert [value is None for value in found.columns["simulation.on_demand.steps"].ravel()] == [False, True, True, True]


def test_a_simulated_model_of_ones_own_is_that_model():
    spec = load_preset("llama-3.1-405b", "model")
    plan = SMALL.model_copy(update={"kv_cache_memory_bytes": 2**30})
    found = sweep(plan, {"tp": [1]}, columns=["simulation.reserve.num_blocks", "engine.num_blocks"], model=spec)
    assert found.columns["simulation.reserve.num_blocks"] == found.columns["engine.num_blocks"] == 130


# Stopping and going on


def test_progress_counts_plans_and_may_stop():
    seen = []
    sweep(Plan(), AXES, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (18, 18)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    with pytest.raises(ValueError, match=r"^the sweep was stopped$"):
        sweep(Plan(), AXES, progress=lambda done, total: done < 10)


def test_a_stopped_sweep_goes_on_from_the_blocks_it_has(monkeypatch):
    kept, counted = {}, []
    with pytest.raises(ValueError, match="stopped"):
        sweep(Plan(), AXES, finished=kept.__setitem__, progress=lambda done, total: done < 10)
    monkeypatch.setattr(
        module, "_values", lambda block, *rest, real=module._values: counted.append(block) or real(block, *rest)
    )
    again = sweep(Plan(), AXES, done=kept)
    assert len(kept) + len(counted) == 6
    assert counted
    assert list(again.rows()) == list(sweep(Plan(), AXES).rows())
