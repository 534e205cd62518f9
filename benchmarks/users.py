"""How the dashboard serves many users at once, and whether each gets their own figures.

    python benchmarks/users.py [--users 20 50] [--seconds 20] [--gap 1]

Starts the dashboard, connects so many clients that speak Streamlit's protocol over websockets, and lets each move a
slider every `--gap` seconds, whether or not the last reply is there. Every reply is held against `evaluate` of that
user's plan. The exit code is 1 where a move was lost or a figure was not that user's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass

import psutil
from load import PAGES, Phase, moved, opened, phase
from serving import Server, serving

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Load:
    """What a number of users came to. Memory is the server's resident set: with every page loaded, with the users
    connected, after their moves. CPU is the server's from the first move to the last reply."""

    users: int
    phase: Phase
    overtaken: int
    wrong: list[str]
    cores: float
    cpu_ms_per_run: float
    reply_bytes: float
    before_bytes: int
    connected_bytes: int
    after_bytes: int


async def measured(server: Server, number: int, seconds: float, gap_s: float) -> Load:
    """So many users on a fresh server."""
    process = psutil.Process(server.process.pid)
    async with AsyncExitStack() as first:
        await opened(first, server.address, len(PAGES))
    before = process.memory_info().rss
    async with AsyncExitStack() as stack:
        users = await opened(stack, server.address, number)
        connected, idle_s = process.memory_info().rss, _cpu_s(process)
        begin, end = await moved(users, seconds, gap_s)
        busy_s = _cpu_s(process) - idle_s
        found = [(user, await user.settle()) for user in users]
        cpu_s, after = _cpu_s(process) - idle_s, process.memory_info().rss
    replies = [reply for user in users for reply in user.replies]
    return Load(
        users=number,
        phase=phase(found, [(begin, end)]),
        overtaken=sum(answered.overtaken for _, answered in found),
        wrong=[line for _, answered in found for line in answered.wrong],
        cores=busy_s / (end - begin),
        cpu_ms_per_run=1000 * cpu_s / (len(replies) - number),
        reply_bytes=sum(reply.size_bytes for reply in replies) / len(replies),
        before_bytes=before,
        connected_bytes=connected,
        after_bytes=after,
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


ROWS = {
    "moves offered": lambda load: f"{load.phase.offered:,}",
    "answered": lambda load: f"{len(load.phase.milliseconds):,}",
    "of them with the user's next": lambda load: f"{load.overtaken:,}",
    "lost": lambda load: f"{load.phase.lost:,}",
    "another user's or wrong figures": lambda load: f"{len(load.wrong):,}",
    "rerun, median": lambda load: f"{load.phase.median:,.0f} ms",
    "rerun, 95%": lambda load: f"{load.phase.p95:,.0f} ms",
    "a reply": lambda load: f"{load.reply_bytes / KIB:,.0f} KiB",
    "CPU while they move": lambda load: f"{load.cores:.2f} cores",
    "CPU of a run": lambda load: f"{load.cpu_ms_per_run:,.0f} ms",
    "memory before": lambda load: f"{load.before_bytes / MIB:,.0f} MiB",
    "memory, all connected": lambda load: f"{load.connected_bytes / MIB:,.0f} MiB",
    "memory, after their moves": lambda load: f"{load.after_bytes / MIB:,.0f} MiB",
    "of it each user": lambda load: f"{(load.after_bytes - load.before_bytes) / load.users / MIB:,.2f} MiB",
}
"""What is printed of each load."""


def report(loads: list[Load]) -> str:
    """The figures, a column for each number of users."""
    lines = [f"{'users':<34}" + "".join(f"{load.users:>14}" for load in loads)]
    lines += [f"{name:<34}" + "".join(f"{text(load):>14}" for load in loads) for name, text in ROWS.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--seconds", type=float, default=20, help="how long they move")
    parser.add_argument("--gap", type=float, default=1, help="seconds between two moves of a user, on average")
    options = parser.parse_args()
    loads = []
    for number in options.users:
        with serving() as server:
            loads.append(asyncio.run(measured(server, number, options.seconds, options.gap)))
    print(report(loads))
    wrong = [line for load in loads for line in load.wrong]
    print(*wrong[:10], sep="\n")
    sys.exit(any(wrong) or any(load.phase.lost for load in loads))


if __name__ == "__main__":
    main()
