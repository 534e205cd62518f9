"""The dashboard on a free port of this machine, as `make run` serves it, for as long as it is needed."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LONGEST_START_S, LONGEST_END_S = 60, 30


class Server(NamedTuple):
    """Where the dashboard answers, and its process."""

    address: str
    process: subprocess.Popen


@contextmanager
def serving(*options: str, port: int | None = None, app: str = "app.py") -> Iterator[Server]:
    """The dashboard, or another `app`, with further `options` of Streamlit. It has answered once, and ends with the
    block."""
    port = port or free_port()
    command = [sys.executable, "-m", "streamlit", "run", app, "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.headless", "true", "--server.fileWatcherType", "none"]
    process = subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = dict(itertools.pairwise(options)).get("--server.baseUrlPath", "")
    address = f"http://127.0.0.1:{port}/{base}".rstrip("/")
    try:
        wait_until_healthy(address, process)
        yield Server(address, process)
    finally:
        end(process)


def end(process: subprocess.Popen) -> None:
    """Tell a process to end; one that does not within `LONGEST_END_S` is killed, and TimeoutExpired raised."""
    process.terminate()
    try:
        process.wait(timeout=LONGEST_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_healthy(address: str, process: subprocess.Popen) -> None:
    """Until the health endpoint says ok. Raises RuntimeError where it does not, or the process ends before."""
    until = time.monotonic() + LONGEST_START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError("the process stopped before it was up")
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as reply:
                if reply.read() == b"ok":
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"not up within {LONGEST_START_S} seconds")
