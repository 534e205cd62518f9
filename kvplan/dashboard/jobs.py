"""Long work in one process beside the server, so that nobody's sliders wait for it.

Work is done in the order in which it was started. It tells how far it is, and stops when it is cancelled, each time it
calls its `progress`. Source: Python, concurrent.futures and multiprocessing (spawn).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import cycle
from weakref import WeakSet

import streamlit as st

PLACES = 256
"""Jobs that may be known at once; a place is used again after so many others."""
KEYS = ("fleet_job", "long_job")
"""Where a session keeps what it began: what was wanted, and the job."""
GIVES_WAY = 10
"""How much lower the worker's priority is than the server's."""
MOST_JOBS = 32
"""Jobs of all sessions together that run or wait; who comes too late is told so."""
LONGEST_S = 300
"""After so long a job is stopped: others wait for it."""
BROKEN = "the process that works beside the server has ended; choose it again to start it anew"
BUSY = f"{MOST_JOBS} longer runs of other users wait already; choose it again in a minute"
TOO_LONG = f"stopped after {LONGEST_S // 60} minutes, as others wait; a shell runs it to its end"

_shared: tuple = ()
"""In the worker: how far each job is, and which are cancelled."""


class Worker:
    """The process, and what it shares with the server: a number and a flag for each place."""

    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.done, self.cancelled = context.Array("d", PLACES, lock=False), context.Array("b", PLACES, lock=False)
        self.executor = ProcessPoolExecutor(1, context, _share, (self.done, self.cancelled))
        self.places = cycle(range(PLACES))
        self.jobs: WeakSet[Job] = WeakSet()
        # Called before the executor waits for its work, as an ordinary atexit is not: a server that is told to end
        # would go on until the longest run is done. A test holds that this is there.
        threading._register_atexit(self.cancel_all)

    def cancel_all(self) -> None:
        """Stop every job the next time it tells how far it is, or before it begins."""
        self.cancelled[:] = [1] * PLACES

    @property
    def is_full(self) -> bool:
        """Whether as many jobs run or wait as may."""
        return sum(not job.is_over for job in self.jobs) >= MOST_JOBS


class Job:
    """One piece of work: how far it is, whether it is over, and what came of it. Work that nobody holds any more, as
    its session has ended, is cancelled."""

    def __init__(self, worker: Worker, place: int, future: Future):
        self.worker, self.place, self.future = worker, place, future
        worker.jobs.add(self)

    def __del__(self):
        self.cancel()

    @property
    def share_done(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.worker.done[self.place])

    @property
    def is_over(self) -> bool:
        return self.future.done()

    def cancel(self) -> None:
        """Stop it the next time it tells how far it is, or before it begins. What is over has given its place away."""
        if not self.is_over:
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
    """Begin `function(*arguments, progress=...)`, a function of a module and arguments that can be pickled. Where too
    many jobs wait it is over at once, and its result is that error."""
    worker = the_worker()
    place = next(worker.places)
    if worker.is_full:
        return _refused(worker, place)
    worker.done[place] = worker.cancelled[place] = 0
    try:
        return Job(worker, place, worker.executor.submit(_work, place, function, arguments))
    except BrokenProcessPool:
        the_worker.clear()
        return start(function, *arguments)


def of_session(key: str, wanted, begin: Callable[[], Job] | None) -> Job | None:
    """The session's job of this key, begun where what is `wanted` has changed, and none without `begin`. A session has
    one job at a time: beginning another cancels and forgets what it began before."""
    former, job = st.session_state.get(key, (None, None))
    if former == wanted:
        return job
    for other in [key] if begin is None else KEYS:
        _, job = st.session_state.get(other, (None, None))
        if job is not None and not job.is_over:
            job.cancel()
            del st.session_state[other]
    job = None if begin is None else begin()
    st.session_state[key] = (wanted, job)
    return job


def _refused(worker: Worker, place: int) -> Job:
    future = Future()
    future.set_exception(ValueError(BUSY))
    return Job(worker, place, future)


def _share(*shared) -> None:
    """The worker begins: it gives way to the server, where the system knows how."""
    global _shared
    _shared = shared
    if hasattr(os, "nice"):
        os.nice(GIVES_WAY)


def _work(place: int, function: Callable, arguments: tuple):
    done, cancelled = _shared
    end_s = time.monotonic() + LONGEST_S

    def tell(number: int, total: int) -> bool:
        done[place] = number / total if total else 1.0
        if time.monotonic() > end_s:
            raise ValueError(TOO_LONG)
        return not cancelled[place]

    return function(*arguments, progress=tell)
