"""Long work in one process beside the server, so that nobody's sliders wait for it.

Work is done in the order in which it was started. It tells how far it is, and stops when it is cancelled, each time it
calls its `progress`. Source: Python, concurrent.futures and multiprocessing (spawn).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import cycle

import streamlit as st

PLACES = 256
"""Jobs that may be known at once; a place is used again after so many others."""
GIVES_WAY = 10
"""How much lower the worker's priority is than the server's."""
BROKEN = "the process that works beside the server has ended; choose it again to start it anew"

_shared: tuple = ()
"""In the worker: how far each job is, and which are cancelled."""


class Worker:
    """The process, and what it shares with the server: a number and a flag for each place."""

    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.done, self.cancelled = context.Array("d", PLACES, lock=False), context.Array("b", PLACES, lock=False)
        self.executor = ProcessPoolExecutor(1, context, _share, (self.done, self.cancelled))
        self.places = cycle(range(PLACES))
        # Called before the executor waits for its work, as an ordinary atexit is not: a server that is told to end
        # would go on until the longest run is done. A test holds that this is there.
        threading._register_atexit(self.cancel_all)

    def cancel_all(self) -> None:
        """Stop every job the next time it tells how far it is, or before it begins."""
        self.cancelled[:] = [1] * PLACES


class Job:
    """One piece of work: how far it is, whether it is over, and what came of it."""

    def __init__(self, worker: Worker, place: int, future: Future):
        self.worker, self.place, self.future = worker, place, future

    @property
    def share_done(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.worker.done[self.place])

    @property
    def is_over(self) -> bool:
        return self.future.done()

    def cancel(self) -> None:
        """Stop it the next time it tells how far it is, or before it begins."""
        self.worker.cancelled[self.place] = 1
        self.future.cancel()

    def result(self):
        """What the work returned. Raises ValueError, one line, where it failed."""
        try:
            return self.future.result()
        except CancelledError:
            raise ValueError("cancelled before it began") from None
        except BrokenProcessPool:
            if the_worker() is self.worker:
                the_worker.clear()
            raise ValueError(BROKEN) from None


@st.cache_resource(show_spinner=False)
def the_worker() -> Worker:
    """The one process of this server, started with its first work."""
    return Worker()


def start(function: Callable, *arguments) -> Job:
    """Begin `function(*arguments, progress=...)`, a function of a module and arguments that can be pickled."""
    worker = the_worker()
    place = next(worker.places)
    worker.done[place] = worker.cancelled[place] = 0
    try:
        return Job(worker, place, worker.executor.submit(_work, place, function, arguments))
    except BrokenProcessPool:
        the_worker.clear()
        return start(function, *arguments)


def _share(*shared) -> None:
    """The worker begins: it gives way to the server, where the system knows how."""
    global _shared
    _shared = shared
    if hasattr(os, "nice"):
        os.nice(GIVES_WAY)


def _work(place: int, function: Callable, arguments: tuple):
    done, cancelled = _shared

    def tell(number: int, total: int) -> bool:
        done[place] = number / total if total else 1.0
        return not cancelled[place]

    return function(*arguments, progress=tell)
