"""A sweep as a file, whole or not at all, and the blocks of one that was interrupted."""

import csv
import io
import json
import math

import numpy as np
import pytest
from hypothesis import given
from pyarrow import parquet
from test_sweep import grids

from kvplan import Plan, sweep
from kvplan.sweep import Sweep
from kvplan.sweep_files import block_writer, header, read_blocks, to_dict, write_file, write_text
from kvplan.version import VERSION

SWEPT = sweep(Plan(tenant_quota_fraction=0.5), {"context": [8192, 2**24], "max_num_seqs": [None, 4]})
"""Columns of every type: whole and real numbers, booleans, words and values that are undefined."""


@pytest.fixture
def written(tmp_path):
    def write(found, ending):
        path = tmp_path / f"found.{ending}"
        write_file(found, ending, path)
        return path

    return write


def test_json_holds_the_plan_the_axes_and_flat_columns(written):
    found = json.loads(written(SWEPT, "json").read_text())
    assert found == to_dict(SWEPT)
    assert (found["schema"], found["version"]) == ("kvplan.sweep/1", VERSION)
    assert found["axes"] == {"context": [8192, 2**24], "max_num_seqs": [None, 4]}
    assert {len(values) for values in found["columns"].values()} == {4}
    assert found["columns"]["capacity.binding"] == [row["capacity.binding"] for row in SWEPT.rows()]
    assert Plan.model_validate(found["plan"]) == SWEPT.plan


def test_csv_has_a_line_for_each_plan_and_nothing_where_a_value_is_undefined(written):
    with written(SWEPT, "csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows == [{name: "" if value is None else str(value) for name, value in row.items()} for row in SWEPT.rows()]


def test_a_text_in_csv_is_no_formula():
    columns = {"engine.refused": np.array(["=1+1", "-2", "+a"])}
    found = Sweep(axes={"model": ["@a", "-b", "c"]}, columns=columns, plan=Plan())
    stream = io.StringIO()
    write_text(found, "csv", stream)
    assert stream.getvalue().splitlines()[1:] == ["'@a,'=1+1", "'-b,-2", "c,'+a"]


def test_a_number_in_csv_reads_back_to_the_last_bit(written):
    with written(SWEPT, "csv").open(newline="") as stream:
        read = [float(row["capacity.on_demand_quotient"]) for row in csv.DictReader(stream)]
    assert read == [row["capacity.on_demand_quotient"] for row in SWEPT.rows()]


def test_parquet_holds_the_same_rows(written):
    assert parquet.read_table(written(SWEPT, "parquet")).to_pylist() == list(SWEPT.rows())


@given(grid=grids())
def test_any_sweep_can_be_written_as_json(grid):
    plan, axes = grid
    found = sweep(plan, axes)
    assert json.loads(json.dumps(to_dict(found), allow_nan=False)) == to_dict(found)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_file_that_cannot_be_finished_leaves_the_former_one(ending, tmp_path, monkeypatch):
    path = tmp_path / f"found.{ending}"
    write_file(SWEPT, ending, path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"No space left"):
        write_file(SWEPT, ending, path)
    assert path.read_bytes() == before
    assert [left.name for left in tmp_path.iterdir()] == [path.name]


# Blocks

AXES = {"context": [4096, 8192], "tp": [1, 2, 4]}
NAMES = ["throughput.tokens_per_s", "throughput.binding", "fleet.gpus", "cache.bytes_per_token", "engine.fits"]
HEADER = header(Plan(), AXES, NAMES)


def blocks_of(path, **changed):
    return sweep(Plan(), AXES, columns=NAMES, finished=block_writer(path), **changed)


def test_blocks_read_back_give_the_same_sweep_without_counting(tmp_path):
    path = tmp_path / "blocks"
    assert read_blocks(path, HEADER) == {}
    found = blocks_of(path)
    done = read_blocks(path, HEADER)
    assert sum(math.prod(values["engine.fits"].shape) for values in done.values()) == 6
    again = sweep(Plan(), AXES, columns=NAMES, done=done, finished=lambda *block: pytest.fail("counted again"))
    assert list(again.rows()) == list(found.rows())


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "blocks"
    read_blocks(path, HEADER)
    blocks_of(path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in (len(whole) - 1, last + 5, last):
        path.write_bytes(whole[:end])
        assert sorted(read_blocks(path, HEADER)) == [0, 1]
        assert path.read_bytes() == whole[:last]


def test_a_header_that_was_cut_off_is_begun_again(tmp_path):
    path = tmp_path / "blocks"
    path.write_text(HEADER[:20])
    assert read_blocks(path, HEADER) == {}
    assert path.read_text() == f"{HEADER}\n"


@pytest.mark.parametrize(
    "other",
    [header(Plan(dp=2), AXES, NAMES), header(Plan(), AXES | {"tp": [1]}, NAMES), header(Plan(), AXES, NAMES[:1]), "?"],
    ids=["plan", "axes", "columns", "text"],
)
def test_blocks_of_another_sweep_are_refused_and_kept(other, tmp_path):
    path = tmp_path / "blocks"
    path.write_text(f"{other}\n")
    with pytest.raises(ValueError, match=r"^blocks holds the blocks of another sweep; remove it, or write to another"):
        read_blocks(path, HEADER)
    assert path.read_text() == f"{other}\n"


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"block": 0}', '{"block": 0, "columns": {"a": [[2], [1]]}}', "\udcff"]
)
def test_a_line_that_is_no_block_is_refused(line, tmp_path):
    path = tmp_path / "blocks"
    path.write_bytes(f"{HEADER}\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"^blocks holds what is no block of a sweep; remove it$"):
        read_blocks(path, HEADER)
