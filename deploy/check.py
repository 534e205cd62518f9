"""Tries deploy/nginx.conf: two replicas of the dashboard behind nginx, with users, on this machine alone.

    PYTHONPATH=. .venv/bin/python deploy/check.py [--users 8]

Starts both replicas and nginx on free ports of 127.0.0.1 and checks what a proxy can break: pages and their files, the
websocket, uploads and downloads, and that a user stays with one replica until that one is gone. Prints what was
checked; the exit code is 1 where something failed. Needs nginx (apt-get install nginx-light) and what the tests need.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from checks import LONGEST_REPLY_S, Check, fetched, figures, files, kept, read, shared_out
from proxied import Proxied, proxied
from visitor import Visitor

LONGEST_CHECK_S = 400
MOST_NEWCOMERS = 20


async def while_both_run(stack: AsyncExitStack, found: Proxied, visitors: list[Visitor]) -> AsyncIterator[Check]:
    for check in files(found.address):
        yield check
    for visitor in visitors:
        await visitor.open(stack)
    yield shared_out(visitors, f"{len(visitors)} users are shared out")
    yield await figures(visitors, "each moves their sliders")
    yield fetched(visitors[0])
    yield await read(found, visitors[0], "a log is uploaded")


async def while_one_is_gone(stack: AsyncExitStack, found: Proxied, visitors: list[Visitor]) -> AsyncIterator[Check]:
    """Its users connect again and have the plan of their address; the others notice nothing."""
    moving = [visitor for visitor in visitors if visitor.replica == "one"]
    staying = [visitor for visitor in visitors if visitor.replica == "two"]
    found.stop("one")
    await asyncio.wait_for(asyncio.gather(*(visitor.user.listening for visitor in moving)), LONGEST_REPLY_S)
    for visitor in moving:
        await visitor.open_again(stack)
    yield await figures(moving, f"replica one ends: its {len(moving)} users come back, and move")
    yield await figures(staying, f"the {len(staying)} others stay connected, and move")
    late = Visitor(found.address, len(visitors))
    await late.open(stack)
    yield Check("somebody new comes meanwhile", f"at {late.replica}", late.replica == "two")
    visitors.append(late)


async def when_it_is_back(found: Proxied, moved: Visitor) -> AsyncIterator[Check]:
    """Who has moved stays where the session is now; newcomers go to both."""
    found.start("one")
    yield await read(found, moved, "it is back: one who moved uploads a log")
    replicas = []
    while "one" not in replicas and len(replicas) < MOST_NEWCOMERS:
        new = Visitor(found.address, -1)
        new.get("")
        replicas.append(new.replica)
        await asyncio.sleep(1)
    yield Check("it has users again", f"newcomer {len(replicas)} is at {replicas[-1]}", "one" in replicas)


async def checks(number: int) -> AsyncIterator[Check]:
    """Every check, in the order in which it happens."""
    with proxied() as found:
        visitors = [Visitor(found.address, seed) for seed in range(number)]
        async with AsyncExitStack() as stack:
            async for check in while_both_run(stack, found, visitors):
                yield check
            moving = [visitor for visitor in visitors if visitor.replica == "one"]
            async for check in while_one_is_gone(stack, found, visitors):
                yield check
            async for check in when_it_is_back(found, (moving or visitors)[0]):
                yield check
        yield kept(found, visitors)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=8)
    failed = 0
    async with asyncio.timeout(LONGEST_CHECK_S):
        async for check in checks(parser.parse_args().users):
            failed += not check.good
            print(f"{'ok' if check.good else 'FAILED':<8}{check.what:<52}{check.found}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    asyncio.run(main())
