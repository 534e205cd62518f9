"""The last plans of a session, in the order in which they came, and the one that is current: undo, redo, and jumps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvplan.differences import change_words, differences
from kvplan.plan import Plan

MOST = 20


@dataclass(frozen=True)
class Entry:
    """A plan and how it differs from the one before it, in words; the first of a session has none before it."""

    plan: Plan
    words: str


@dataclass(frozen=True)
class History:
    """At most 20 entries, oldest first, and the place of the current one. Those after it were undone."""

    entries: tuple[Entry, ...]
    place: int = 0

    @property
    def current(self) -> Entry:
        return self.entries[self.place]


def started(plan: Plan) -> History:
    return History((Entry(plan, "as it was opened"),))


def followed(history: History, plan: Plan) -> History:
    """The history once the plan is this one.

    The plan before or after the current one is a step to it, however it was reached (undo, the browser's Back, a slider
    moved back). Another is a new entry in place of what was undone; but a further change of the one field that the last
    entry changed belongs to that entry, as a slider that is dragged changes its field many times.
    """
    if plan == history.current.plan:
        return history
    for place in (history.place - 1, history.place + 1):
        if 0 <= place < len(history.entries) and history.entries[place].plan == plan:
            return replace(history, place=place)
    kept = history.entries[: history.place + 1]
    if history.place and len(kept) == len(history.entries) and _is_one_move(kept[-2].plan, kept[-1].plan, plan):
        kept = kept[:-1]
    entries = (*kept, Entry(plan, change_words(kept[-1].plan, plan)))[-MOST:]
    return History(entries, len(entries) - 1)


def moved(history: History, place: int) -> History:
    """The history at another of its entries."""
    return replace(history, place=place)


def _is_one_move(before: Plan, between: Plan, after: Plan) -> bool:
    """Whether two changes are of one and the same field."""
    first, second = differences(before, between), differences(between, after)
    return len(first) == len(second) == 1 and first[0].field == second[0].field
