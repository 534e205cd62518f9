"""Users who each open a page and move a slider every so often, and what came back to whom.

The load is open: a user does not wait for a reply before the next move, so a slow server is not asked less.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from answered import Answers, Move, answers
from stream import Reply, Tab, tab

from kvplan import Plan
from kvplan.links import short_query

PAGES = ("", "batching", "paging", "throughput", "", "batching", "paging", "throughput", "pool", "levers")
"""Where users are, in turns."""
MODELS = ("llama-3.1-8b", "qwen3-32b", "gemma-3-27b", "llama-3.1-70b")
MOVED = ("context", "kv_heads", "tp")
GAP = (0.7, 1.3)
"""Between two moves of a user, in parts of the mean, at random."""
LONGEST_WAIT_S = 60
QUIET_S = 2
"""No reply for so long: nothing is under way, or the server is stuck."""


class User:
    """One user with a tab of their own: what they asked for, and what came."""

    def __init__(self, tab: Tab, plan: Plan, seed: int):
        self.tab, self.plan, self.random = tab, plan, random.Random(seed)
        self.moves: list[Move] = []
        self.replies: list[Reply] = []
        self.came = asyncio.Event()
        self.listening = asyncio.create_task(self._listen())

    async def open(self) -> None:
        """Open the page by the plan's link, and wait until it is shown."""
        await self.ask()
        await self.has_come(LONGEST_WAIT_S)

    async def move_for(self, seconds: float, gap_s: float) -> None:
        """Move about every `gap_s`."""
        at = time.perf_counter() + self.random.uniform(0, gap_s)
        until = time.perf_counter() + seconds
        while at < until:
            await asyncio.sleep(at - time.perf_counter())
            await self.move()
            at += gap_s * self.random.uniform(*GAP)

    async def move(self) -> None:
        """Take another value of one of the controls there are."""
        field = self.random.choice([name for name in MOVED if name in self.tab.options])
        value = self.random.choice([text for text in self.tab.options[field] if text != str(getattr(self.plan, field))])
        self.tab.move(field, [value])
        self.plan = self.plan.model_copy(update={field: int(value)})
        await self.ask()

    async def ask(self) -> None:
        """Ask for a run with the widgets as they are."""
        self.moves.append(Move(time.perf_counter(), self.tab.page, self.plan))
        await self.tab.run(short_query(self.plan))

    async def settle(self) -> Answers:
        """Wait for what is still to come, as long as anybody would."""
        until = time.perf_counter() + LONGEST_WAIT_S
        while await self.has_come(QUIET_S) or (self._waits() and time.perf_counter() < until):
            pass
        return self.answers

    async def has_come(self, seconds: float) -> bool:
        """Whether another reply comes within so many seconds, and the connection is still there."""
        self.came.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self.is_gone else seconds):
                await self.came.wait()
                return not self.is_gone
        return False

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self.listening.done()

    @property
    def answers(self) -> Answers:
        return answers(self.moves, self.replies)

    async def _listen(self) -> None:
        async for reply in self.tab.replies():
            self.replies.append(reply)
            self.came.set()
        # Nobody waits for a reply of a connection that has ended.
        self.came.set()

    def _waits(self) -> bool:
        return not self.is_gone and self.answers.seconds[-1] is None


def page_of(seed: int) -> str:
    return PAGES[seed % len(PAGES)]


def plan_of(seed: int) -> Plan:
    """A plan that no other user begins with."""
    return Plan(model=MODELS[seed % len(MODELS)], gpu="h200", tp=4, gpu_memory_utilization=0.6 + 0.005 * seed)


async def opened(stack: AsyncExitStack, address: str, number: int) -> list[User]:
    """So many users, who open their pages one after another."""
    users = []
    for seed in range(number):
        connected = await stack.enter_async_context(tab(address, page_of(seed)))
        users.append(User(connected, plan_of(seed), seed))
        await users[-1].open()
    return users


@dataclass(frozen=True)
class Phase:
    """Moves of all users within a span of time, in milliseconds until each was answered; `lost` ones never were."""

    offered: int
    milliseconds: list[float]
    lost: int

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.milliseconds, n=20)[-1]


async def moved(users: list[User], seconds: float, gap_s: float) -> tuple[float, float]:
    """Let all of them move for so long; when it began, and when the last had asked."""
    begin = time.perf_counter()
    await asyncio.gather(*(user.move_for(seconds, gap_s) for user in users))
    return begin, time.perf_counter()


def phase(found: list[tuple[User, Answers]], spans: list[tuple[float, float]]) -> Phase:
    """What the moves of these spans of time came to."""
    seconds = [
        taken
        for user, answered in found
        for move, taken in zip(user.moves, answered.seconds, strict=True)
        if any(begin <= move.at_s < end for begin, end in spans)
    ]
    milliseconds = [1000 * taken for taken in seconds if taken is not None]
    return Phase(len(seconds), milliseconds, len(seconds) - len(milliseconds))
