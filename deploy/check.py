"""Tries deploy/nginx.conf: two replicas of the dashboard behind nginx, with users, on this machine alone.

    python deploy/check.py [--users 8]

Starts both replicas and nginx on free ports of 127.0.0.1 and checks what a proxy can break: pages and their files, the
websocket, uploads and downloads, and that a user stays with one replica until that one is gone. Prints what was
checked; the exit code is 1 where something failed. Needs nginx (apt-get install nginx-light) and what the tests need.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import streamlit
from proxied import Proxied, proxied
from visitor import Visitor, upload_place, uploaded

from kvplan import Plan, parse_engine_log
from kvplan.log_comparison import compare
from kvplan.markdown import escape_sentence
from kvplan.verdict import engine_log

LOG = Path(__file__).parents[1] / "docs/samples/vllm.log"
MOVES = 3
LONGEST_REPLY_S = 60
LONGEST_CHECK_S = 400
MOST_NEWCOMERS = 20


class Check(NamedTuple):
    """What was looked at, what was found, and whether it is as it should be."""

    what: str
    found: str
    good: bool


def files(address: str) -> list[Check]:
    """Pages by their addresses, and the largest script they load."""
    visitor = Visitor(address, -1)
    health, *pages = (visitor.get(path) for path in ("_stcore/health", "", "pool?tp=4"))
    right = all(page.ok and "<html" in page.text for page in pages)
    script = max(Path(streamlit.__file__).parent.glob("static/static/js/*.js"), key=lambda path: path.stat().st_size)
    reply = visitor.get(f"static/js/{script.name}", headers={"Accept-Encoding": "gzip"}, stream=True)
    sent, plain = reply.raw.read(decode_content=False), script.read_bytes()
    packed = reply.headers.get("Content-Encoding") == "gzip" and gzip.decompress(sent) == plain
    inside = visitor.get("_stcore/metrics").status_code
    kept = reply.headers.get("Cache-Control", "nothing said")
    return [
        Check("health", health.text, health.text == "ok"),
        Check("pages by their addresses", ", ".join(str(page.status_code) for page in pages), right),
        Check("its largest script is compressed", f"{len(plain):,} bytes are sent as {len(sent):,}", packed),
        Check("browsers keep it", kept, "immutable" in kept),
        Check("metrics stay inside", str(inside), inside == 403),
    ]


async def figures(visitors: list[Visitor], what: str) -> Check:
    """Every user moves, and sees the figures of their own plan."""
    for _ in range(MOVES):
        for visitor in visitors:
            await visitor.user.move()
            await visitor.user.has_come(LONGEST_REPLY_S)
    found = [await visitor.user.settle() for visitor in visitors]
    wrong = [line for answers in found for line in answers.wrong]
    times = [taken for answers in found for taken in answers.seconds]
    words = wrong[0] if wrong else f"{len(times)} runs, {times.count(None)} lost, all with their own plan's figures"
    return Check(what, words, not wrong and None not in times)


def shared_out(visitors: list[Visitor], what: str) -> Check:
    """Both replicas have users."""
    counts = [sum(visitor.replica == name for visitor in visitors) for name in ("one", "two")]
    return Check(what, f"{counts[0]} at one, {counts[1]} at two", all(counts))


def fetched(visitor: Visitor) -> Check:
    """A table as a file, from the replica that made it."""
    reply = visitor.get(visitor.user.replies[-1].downloads[0].lstrip("/"))
    return Check("a table is downloaded", f"{len(reply.content):,} bytes", reply.ok and b"," in reply.content)


async def read(found: Proxied, visitor: Visitor, what: str) -> Check:
    """A log reaches the session that asked for it, and is read; the other replica refuses it."""
    content = LOG.read_bytes()
    astray = Visitor(found.replica_address("two" if visitor.replica == "one" else "one"), -1)
    astray.get("_stcore/health")
    async with visitor.connecting("engine-log") as shown:
        replies = shown.replies()
        await shown.run({})
        await anext(replies)
        place = await upload_place(shown, LOG.name)
        refused = astray.put(place, LOG.name, content)
        taken = visitor.put(place, LOG.name, content)
        uploaded(shown, "log_file", place, LOG.name, len(content))
        await shown.run({})
        reply = await anext(replies)
    wanted = escape_sentence(engine_log(compare(parse_engine_log(content.decode()), base=Plan())))
    good = taken == 204 and refused == 400 and wanted in reply.headings
    return Check(what, f"{taken} at its own replica, {refused} at the other one", good)


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


def kept(found: Proxied, visitors: list[Visitor]) -> Check:
    """From the proxy's log: nobody's requests went to and fro."""
    ways = {visitor.seed: [] for visitor in visitors}
    number = 0
    for who, replica in found.requests():
        if who in ways:
            number += 1
            ways[who] += [] if ways[who][-1:] == [replica] else [replica]
    good = all(way in (["two"], ["one", "two"]) for way in ways.values())
    return Check("each stayed at one replica while it was there", f"{number} requests", good)


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
