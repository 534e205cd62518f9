"""Whether one user with heavy work slows the others: what they wait for beside it, and without it.

    python benchmarks/heavy_user.py [--users 20] [--gap 5] [--seconds 10] [--rounds 3] [--only KIND ...]

Some users move sliders, as in users.py, with and without one more user in turns. That one has a million requests run on
the Pool page, or drags a slider on the Sweep page with a map of 1,600 plans that share no structure, or on the Pool
page. Prints what the others waited for, of all rounds together, so that a machine that is busy is so for both.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress

from load import LONGEST_WAIT_S, Phase, User, moved, opened, phase
from serving import serving
from stream import tab

from kvplan import Plan
from kvplan.sweep_words import TITLES

POLL_S = 0.4
"""How often the page of a long run asks how far it is, as kvplan/dashboard/long_run.py has it."""
LONG_RUN, NO_RUN = "1,000,000", "none"
AXES = {"sweep_x": "layers", "sweep_y": "kv_heads"}
CONTEXTS = ("8192", "16384", "32768", "65536")


async def seen(user: User) -> None:
    """A run of the page, and its reply."""
    await user.tab.run({})
    await user.has_come(LONGEST_WAIT_S)


async def dragged(user: User) -> None:
    """The context here and there, each time the page is there."""
    for context in itertools.cycle(CONTEXTS):
        user.tab.move("context", [context])
        await seen(user)


async def run(user: User) -> None:
    """A million requests, and again when they are done; in the end none, so that nothing goes on."""
    try:
        for chosen in itertools.cycle((LONG_RUN, NO_RUN)):
            user.tab.move("long_run", [chosen])
            await seen(user)
            while user.tab.fragment:
                await asyncio.sleep(POLL_S)
                await user.tab.run({}, user.tab.fragment)
                await user.has_come(POLL_S)
    finally:
        user.tab.move("long_run", [NO_RUN])
        await seen(user)


async def sweep(user: User) -> None:
    """A map of 40 by 40 plans that share nothing, counted again for each context."""
    for key, field in AXES.items():
        user.tab.move(key, TITLES[field])
        await seen(user)
        user.tab.move(f"sweep_values_{field}", "1:40:1")
        await seen(user)
    await dragged(user)


HEAVY = {"run": ("pool", run), "map": ("sweep", sweep), "pool": ("pool", dragged)}
"""What the heavy user does: the page, and on it."""


async def beside(address: str, kind: str, moving: Coroutine) -> tuple[float, float]:
    """The users' moves while one more is at work; when they began and ended."""
    page, work = HEAVY[kind]
    async with tab(address, page) as connected:
        heavy = User(connected, Plan(), seed=0)
        await seen(heavy)
        working = asyncio.create_task(work(heavy))
        span = await moving
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    return span


async def measured(address: str, options: argparse.Namespace) -> dict[str, tuple[Phase, Phase]]:
    """For each kind of work what the others waited for without it and beside it."""
    spans = {kind: ([], []) for kind in options.only}
    async with AsyncExitStack() as stack:
        users = await opened(stack, address, options.users)
        for kind, (without, with_it) in spans.items():
            for _ in range(options.rounds):
                without.append(await moved(users, options.seconds, options.gap))
                with_it.append(await beside(address, kind, moved(users, options.seconds, options.gap)))
        found = [(user, await user.settle()) for user in users]
    if wrong := [line for _, answered in found for line in answered.wrong]:
        raise RuntimeError(f"figures that are not this user's: {wrong[0]}")
    return {kind: (phase(found, without), phase(found, with_it)) for kind, (without, with_it) in spans.items()}


def report(found: dict[str, tuple[Phase, Phase]]) -> str:
    """Two lines for each kind of work."""
    lines = [f"{'the others, ms':<28}{'moves':>8}{'lost':>8}{'median':>10}{'95%':>10}"]
    for kind, (without, with_it) in found.items():
        lines += [_line(f"without the {kind}", without), _line(f"beside a user's {kind}", with_it)]
        lines += [f"{'ratio':<44}{with_it.median / without.median:>10.2f}{with_it.p95 / without.p95:>10.2f}"]
    return "\n".join(lines)


def _line(name: str, phase: Phase) -> str:
    return f"{name:<28}{phase.offered:>8}{phase.lost:>8}{phase.median:>10.0f}{phase.p95:>10.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--gap", type=float, default=5, help="seconds between two moves of a user, on average")
    parser.add_argument("--seconds", type=float, default=10, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns with and without it, of each kind")
    parser.add_argument("--only", nargs="+", choices=HEAVY, default=[*HEAVY], help="kinds of heavy work")
    with serving() as server:
        print(report(asyncio.run(measured(server.address, parser.parse_args()))))


if __name__ == "__main__":
    main()
