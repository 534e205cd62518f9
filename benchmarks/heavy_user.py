"""Whether one user with heavy work slows the others: what they wait for beside it, and before and after it.

    python benchmarks/heavy_user.py [--users 20] [--seconds 15] [--gap 5] [--only run map pool]

Some users move sliders, as in users.py, first alone; then one more has a million requests run on the Pool page, or
drags a slider on the Sweep page with a map of 1,600 plans, each of another structure, or on the Pool page; each time
for so many seconds, with as long a pause in between. The ratio is of the 95th percentile to that of the pauses before
and after.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing

from load import Phase, moved, opened, phase
from serving import serving
from stream import Tab, tab

from kvplan.sweep_words import TITLES

POLL_S = 0.4
"""How often the page of a long run asks how far it is, as kvplan/dashboard/long_run.py has it."""
LONG_RUN, NO_RUN = "1,000,000", "none"
AXES = {"sweep_x": "layers", "sweep_y": "kv_heads"}
CONTEXTS = ("8192", "16384", "32768", "65536")


async def run(tab: Tab) -> None:
    """A million requests, and again when they are done."""
    replies = tab.replies()
    await shown(tab, replies)
    while True:
        for chosen in (LONG_RUN, NO_RUN):
            tab.move("long_run", [chosen])
            await shown(tab, replies)
            while tab.fragment:
                await asyncio.sleep(POLL_S)
                await shown(tab, replies, tab.fragment)


async def map_of_structures(tab: Tab) -> None:
    """A map of 40 by 40 plans that share nothing, made again for each context."""
    replies = tab.replies()
    await shown(tab, replies)
    for key, field in AXES.items():
        tab.move(key, TITLES[field])
        await shown(tab, replies)
        tab.move(f"sweep_values_{field}", "1:40:1")
        await shown(tab, replies)
    await dragged(tab, replies)


async def pool(tab: Tab) -> None:
    """Both policies of the pool, run again for each context."""
    replies = tab.replies()
    await shown(tab, replies)
    await dragged(tab, replies)
