"""Sweeps on a real cluster of two workers, also when one of them is killed half-way."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from test_cli import ROOT, kvplan

from kvplan.version import VERSION

SIMULATED = [
    "sweep", "--set", "max_num_seqs=64", "--axis", "context=2048:4096:lin10", "--axis", "tp=1,2", "--columns",
    "simulation.on_demand.steps,simulation.reserve.ttft_s.p95,capacity.batch_ceiling",
]  # fmt: skip
"""Twenty runs of a simulation."""
DEADLINE_S = 60


def distributed(stack, part, *options):
    """A scheduler or a worker in a process of its own, which ends with the test."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{part}", *options, "--no-dashboard"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@pytest.fixture
def cluster():
    """The address of a scheduler, and its two workers, which run one task at a time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with ExitStack() as stack:
        distributed(stack, "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2])
        options = (address, "--no-nanny", "--nthreads", "1")
        yield address, [distributed(stack, "worker", *options) for _ in range(2)]


def waited_for(condition):
    """Whether something holds before the deadline."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return condition()


def test_a_cluster_gives_the_same_table_and_so_does_one_that_loses_a_worker(cluster, tmp_path):
    address, (_, killed) = cluster
    alone, shared, halved = (tmp_path / f"{name}.csv" for name in ("alone", "shared", "halved"))
    assert kvplan(*SIMULATED, "-o", str(alone)).returncode == 0

    run = kvplan(*SIMULATED, "-o", str(shared), "--dask", address)
    assert run.stderr.splitlines()[-1] == f"kvplan: 20 plans in {shared}"
    assert shared.read_bytes() == alone.read_bytes()

    partial = tmp_path / "halved.csv.partial"
    command = [sys.executable, "-m", "kvplan", *SIMULATED, "-o", str(halved), "--dask", address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert waited_for(lambda: partial.exists() and partial.read_bytes().count(b"\n") > 5)
        killed.send_signal(signal.SIGKILL)
        assert process.poll() is None
    assert process.returncode == 0
    assert killed.wait() == -signal.SIGKILL
    assert halved.read_bytes() == alone.read_bytes()


ANOTHER_VERSION = """
import sys
import kvplan
sys.modules["kvplan.sweep"].VERSION = "0.0.1"
from kvplan.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_worker_of_another_version_is_refused_in_one_line(cluster):
    address, _ = cluster
    command = [sys.executable, "-c", ANOTHER_VERSION, "sweep", "--axis", "tp=1,2", "--dask", address]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"kvplan: version: 0.0.1 asks, and a worker has {VERSION}; both must be the same\n"
