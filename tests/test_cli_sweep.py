"""`kvplan sweep` as a user runs it: a table on standard output or in a file, resumed where it stopped."""

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from test_cli import ROOT, called, kvplan, printed

from kvplan import Plan, evaluate, sweep
from kvplan.sweep_files import to_dict

AXES = ["--axis", "context=4096:16384:x2", "--axis", "tp=1,2"]
FEW = ["--columns", "capacity.batch_ceiling,engine.fits"]
SLOW = [
    "sweep", "--set", "max_num_seqs=64", "--axis", "context=2048:4096:lin16", "--columns",
    "simulation.on_demand.steps,simulation.reserve.ttft_s.p95",
]  # fmt: skip
"""Sixteen runs of a simulation."""


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_sweep_in_a_process_of_its_own_is_a_csv_table():
    run = kvplan("sweep", *AXES, *FEW)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[:2] == ["context,tp,capacity.batch_ceiling,engine.fits", "4096,1,109,True"]
    for row in table(run.stdout):
        report = evaluate(Plan(context=int(row["context"]), tp=int(row["tp"])))
        assert row["capacity.batch_ceiling"] == str(report.capacity.batch_ceiling)


def test_json_is_what_python_gives():
    found = json.loads(printed("sweep", *AXES, "--json"))
    assert found == to_dict(sweep(Plan(), {"context": [4096, 8192, 16384], "tp": [1, 2]}))


def test_the_plan_comes_from_a_preset_and_from_set():
    options = ["--preset", "llama-70b-chat-4xh100", "--set", "kv_dtype=fp8"]
    found = json.loads(printed("sweep", *options, *AXES, "--json"))
    assert (found["plan"]["model"], found["plan"]["kv_dtype"]) == ("llama-3.1-70b", "fp8")


def test_processes_give_the_same_table():
    options = ["sweep", *AXES, "--columns", "throughput,capacity"]
    assert kvplan(*options, "--processes", "2").stdout == printed(*options)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_file_is_written_whole_and_its_place_is_said(ending, tmp_path):
    path = tmp_path / f"found.{ending}"
    run = called("sweep", *AXES, *FEW, "-o", str(path))
    assert (run.returncode, run.stdout, run.stderr) == (0, "", f"kvplan: 6 plans in {path}\n")
    assert [left.name for left in tmp_path.iterdir()] == [path.name]
    if ending == "csv":
        assert path.read_text() == printed("sweep", *AXES, *FEW)


def test_a_killed_sweep_goes_on_and_ends_as_one_that_was_not(tmp_path):
    path = tmp_path / "found.csv"
    partial = tmp_path / "found.csv.partial"
    command = [sys.executable, "-m", "kvplan", *SLOW, "-o", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not (partial.exists() and partial.read_bytes().count(b"\n") > 4):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not path.exists()
    blocks = partial.read_bytes().count(b"\n") - 1
    assert 4 <= blocks < 16
    again = called(*SLOW, "-o", str(path))
    assert again.stderr.splitlines() == [f"kvplan: going on from {partial}", f"kvplan: 16 plans in {path}"]
    assert path.read_text() == printed(*SLOW)
    assert not partial.exists()


def test_an_interrupted_sweep_says_nothing_and_keeps_its_blocks(tmp_path, monkeypatch):
    path, partial = tmp_path / "found.csv", tmp_path / "found.csv.partial"
    module, seen = sys.modules["kvplan.sweep"], []

    def interrupted(plan, names, model, counted=module._point):
        seen.append(plan)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return counted(plan, names, model)

    with monkeypatch.context() as patched:
        patched.setattr(module, "_point", interrupted)
        run = called(*SLOW, "-o", str(path))
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")
    assert partial.read_bytes().count(b"\n") == 1 + 3
    assert called(*SLOW, "-o", str(path)).stderr.startswith(f"kvplan: going on from {partial}\n")


def test_a_terminal_sees_how_far_it_is():
    ours, theirs = pty.openpty()
    run = subprocess.run(
        [sys.executable, "-m", "kvplan", *SLOW[:4], "context=2048:4096:lin3", *SLOW[5:]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert run.returncode == 0
    assert shown == "\r  33%\r  67%\r 100%\r\n"


def test_another_sweep_does_not_touch_the_blocks_of_the_first(tmp_path):
    path, partial = tmp_path / "found.csv", tmp_path / "found.csv.partial"
    partial.write_text("{}\n")
    run = called(*SLOW, "-o", str(path))
    message = "kvplan: -o: found.csv.partial holds the blocks of another sweep; remove it, or write to another file\n"
    assert (run.returncode, run.stderr, partial.read_text()) == (2, message, "{}\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--axis: at least one is needed, e.g. --axis context=1024:131072:x2"),
        (["--axis", "context"], "--axis: must be FIELD=VALUES, got 'context'"),
        (["--axis", "contxt=1"], "--axis: contxt: no field of a plan; nearest: context"),
        (["--axis", "context=0"], "--axis: context: Input should be greater than or equal to 1, got '0'"),
        (["--axis", "context=many"], "--axis: context: Input should be a valid integer, unable to parse"),
        (["--axis", "context=9:1:1"], "--axis: context: a range goes up, got 9:1:1"),
        (["--axis", "tp=1", "--axis", "tp=2"], "--axis: tp is given twice"),
        (["--axis", "gpu=h100-sxm,h1000"], "--axis: gpu: no preset named 'h1000'; nearest: "),
        (["--axis", "tp=1", "--set", "model=nothing"], "model: no preset named 'nothing'; nearest: "),
        (["--axis", "tp=1", "--columns", "fleets"], "--columns: no 'fleets' in a report; nearest: fleet."),
        (["--axis", "tp=1", "-o", "found.xlsx"], "-o: must end in .csv, .json, .parquet, got 'found.xlsx'"),
        (["--axis", "tp=1", "-o", "found.csv", "--json"], "-o: --json is for standard output, got 'found.csv'"),
        (["--axis", "tp=1", "-o", "no/folder/found.csv"], "-o: no/folder/found.csv cannot be written, No such file"),
        (["--axis", "tp=1", "-o", "no/found.csv", *FEW, "--columns", "fleet"], "-o: no/found.csv.partial cannot be"),
        (["--axis", "tp=1", "--processes", "0"], "--processes: must be a whole number from 1 to 256, got '0'"),
        (["--axis", "tp=1", "--dask", "nowhere"], "--dask: no scheduler answers at 'nowhere': "),
        (["--axis", "context=1:5000:1", "--axis", "max_num_seqs=1:5000:1"],
         "axes: a sweep has at most 20,000,000 plans, got 25,000,000"),
        (["--axis", "tp=1", "--processes", "2", "--dask", "tcp://localhost:1"], "argument --dask: not allowed with"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_two(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = called("sweep", *options)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"kvplan: {message}")
    assert run.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "options", "extra"),
    [("pyarrow", ["-o", "found.parquet"], "dashboard"), ("distributed", ["--dask", "tcp://localhost:1"], "dask")],
)
def test_a_package_that_is_not_there_is_asked_for_before_any_work(package, options, extra, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run = called("sweep", "--axis", "tp=1", *options)
    assert run.returncode == 2
    assert run.stderr.endswith(f"needs {package}, which comes with pip install 'kvplan[{extra}]'\n")
