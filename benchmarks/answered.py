"""Which reply answers which move of a user, by the figures it shows.

A move that is overtaken by the user's next one is answered by the reply to that one, as Streamlit drops the run it
interrupts.
"""

from __future__ import annotations

from dataclasses import dataclass

from figures_shown import shown
from stream import Reply

from kvplan import Plan, evaluate
from kvplan.links import short_query


@dataclass(frozen=True)
class Move:
    """What a user asked for and when: a page for a plan."""

    at_s: float
    page: str
    plan: Plan


@dataclass(frozen=True)
class Answers:
    """What one user's moves came to: seconds until each was answered, None for never; how many were overtaken; and
    replies that showed figures of another plan, an error or no chart."""

    seconds: list[float | None]
    overtaken: int
    wrong: list[str]


def answers(moves: list[Move], replies: list[Reply]) -> Answers:
    """Which reply answers which move: the newest that was asked before, and whose figures it shows."""
    seconds, wrong, overtaken = [], [], 0
    for reply in replies:
        done, asked = len(seconds), sum(move.at_s < reply.at_s for move in moves)
        newest = next((at for at in reversed(range(done, asked)) if _shows(reply, moves[at])), None)
        if newest is not None:
            seconds += [reply.at_s - move.at_s for move in moves[done : newest + 1]]
            overtaken += newest - done
        elif done == 0 or not _shows(reply, moves[done - 1]):
            wrong.append(f"{reply.metrics} for {short_query(moves[asked - 1].plan)} at /{moves[asked - 1].page}")
        if reply.errors or not (reply.charts or _shows_none(moves[asked - 1].plan)):
            wrong.append(f"{reply.charts} charts, {reply.errors or 'no error'} at /{moves[asked - 1].page}")
    return Answers(seconds + [None] * (len(moves) - len(seconds)), overtaken, wrong)


def _shows(reply: Reply, move: Move) -> bool:
    """Whether a page opened with the metrics of this plan; further down it may have others."""
    wanted = shown(move.page, move.plan)
    return reply.metrics[: len(wanted)] == wanted


def _shows_none(plan: Plan) -> bool:
    """Some pages have no chart where nothing runs."""
    return evaluate(plan).capacity.batch_ceiling == 0
