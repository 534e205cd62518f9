"""What is checked of the dashboard behind its proxy, one thing at a time."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import streamlit
from proxied import Proxied
from visitor import Visitor, upload_place, uploaded

from kvplan import Plan, parse_engine_log
from kvplan.log_comparison import compare
from kvplan.markdown import escape_sentence
from kvplan.verdict import engine_log

LOG = Path(__file__).parents[1] / "docs/samples/vllm.log"
MOVES = 3
LONGEST_REPLY_S = 60


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
