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
from load import PAGES, Phase, User, moved, opened, phase
from serving import Server, serving

MIB = 2**20


@dataclass(frozen=True)
class Load:
    """What a number of users came to. Memory is the server's resident set: with every page loaded, then with the users
    connected, then after their moves. `cpu_cores` are cores the server kept busy while they moved."""

    users: int
    phase: Phase
    overtaken: int
    wrong: list[str]
    runs: int
    cpu_s: float
    wall_s: float
    before_bytes: int
    connected_bytes: int
    after_bytes: int
    reply_bytes: float


async def measured(server: Server, number: int, seconds: float, gap_s: float) -> Load:
    """So many users on a fresh server."""
    process = psutil.Process(server.process.pid)
    async with AsyncExitStack() as first:
        await opened(first, server.address, len(PAGES))
    before = process.memory_info().rss
    async with AsyncExitStack() as stack:
        users = await opened(stack, server.address, number)
        connected, cpu_s = process.memory_info().rss, _cpu_s(process)
        begin, end = await moved(users, seconds, gap_s)
        found = [(user, await user.settle()) for user in users]
        cpu_s = _cpu_s(process) - cpu_s
        after = process.memory_info().rss
    return Load(
        number,
        phase(found, begin, end),
        sum(answered.overtaken for _, answered in found),
        [line for _, answered in found for line in answered.wrong],
        cores,
        before,
        connected,
        after,
        sum(map(_mean_bytes, users)) / number,
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _mean_bytes(user: User) -> float:
    return sum(reply.size_bytes for reply in user.replies) / len(user.replies)


def report(loads: list[Load]) -> str:
    """The figures, a column for each number of users."""
    rows = {
        "moves offered": lambda load: f"{load.phase.offered:,}",
        "answered": lambda load: f"{len(load.phase.milliseconds):,}",
        "of them by the next move's reply": lambda load: f"{load.overtaken:,}",
        "lost": lambda load: f"{load.phase.lost:,}",
        "replies with wrong figures": lambda load: f"{len(load.wrong):,}",
        "rerun, median": lambda load: f"{load.phase.median:,.0f} ms",
        "rerun, 95%": lambda load: f"{load.phase.p95:,.0f} ms",
        "a reply": lambda load: f"{load.reply_bytes / 1024:,.0f} KiB",
        "server's CPU": lambda load: f"{load.cpu_cores:.2f} cores",
        "memory before": lambda load: f"{load.before_bytes / MIB:,.0f} MiB",
        "memory with all connected": lambda load: f"{load.connected_bytes / MIB:,.0f} MiB",
        "of it each user": lambda load: f"{(load.connected_bytes - load.before_bytes) / load.users / MIB:,.2f} MiB",
        "memory after their moves": lambda load: f"{load.after_bytes / MIB:,.0f} MiB",
    }
    lines = [f"{'users':<34}" + "".join(f"{load.users:>14}" for load in loads)]
    lines += [f"{name:<34}" + "".join(f"{text(load):>14}" for load in loads) for name, text in rows.items()]
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
