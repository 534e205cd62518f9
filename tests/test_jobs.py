"""Long work in the process beside the server: its result, its progress, its end, and what happens when it dies."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from kvplan import Plan, evaluate, pool
from kvplan.dashboard import jobs

LONGEST_WAIT_S = 60


def add(first, second, progress):
    progress(1, 1)
    return first + second


def refuse(progress):
    raise ValueError("field: must be something else, got 3")


def pid(progress):
    return os.getpid()


def priority(progress):
    return os.nice(0)


def unable(progress):
    raise RuntimeError("not of the kind that is expected")


def nothing_to_do(progress):
    return progress(0, 0)


def until_cancelled(progress):
    """Half done, until somebody cancels it, or a test that waits for its end has failed."""
    until = time.monotonic() + 2 * LONGEST_WAIT_S
    while progress(1, 2) and time.monotonic() < until:
        time.sleep(0.01)
    raise ValueError("the run was stopped")


def until_there(path, progress):
    """Half done, until a file is there."""
    while not os.path.exists(path):
        progress(1, 2)
        time.sleep(0.01)
    return "done"


def wait_for(condition):
    """Until it holds; a test that would wait for ever fails."""
    until = time.monotonic() + LONGEST_WAIT_S
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.01)


def shut_down(worker):
    worker.executor.shutdown(cancel_futures=True)


@pytest.fixture(autouse=True, scope="module")
def worker_that_ends():
    """The process that these tests share ends with them."""
    yield
    shut_down(jobs.the_worker())
    jobs.the_worker.clear()


@pytest.fixture(autouse=True)
def session(monkeypatch):
    """A session of its own for each test."""
    found = {}
    monkeypatch.setattr(jobs.st, "session_state", found)
    return found


@pytest.fixture
def kill_worker():
    """Ends the process as a lack of memory would; what is left of its executor is put away."""
    killed = []

    def kill():
        worker = jobs.the_worker()
        killed.append(worker)
        (process,) = worker.executor._processes.values()
        os.kill(process.pid, signal.SIGKILL)
        return worker

    yield kill
    for worker in killed:
        shut_down(worker)


# What is done


def test_a_function_of_a_module_is_run_in_another_process():
    job = jobs.start(add, 2, 3)
    assert job.result() == 5
    assert job.is_over
    assert job.share_done == 1
    assert jobs.start(pid).result() != os.getpid()


def test_there_is_one_process():
    first, second = jobs.start(pid), jobs.start(pid)
    assert first.result() == second.result()
    (process,) = jobs.the_worker().executor._processes
    assert process == first.result()


def test_it_gives_way_to_the_server():
    assert jobs.start(priority).result() >= os.nice(0)


def test_a_run_of_a_plan_is_what_it_would_be_here():
    plan = Plan(workload="seeded-200", max_num_seqs=16)
    found = jobs.start(pool.runs_of_plan, plan, 200, None).result()
    assert pool.results(found) == pool.results(pool.runs_of_plan(plan, 200))


def test_what_cannot_be_done_is_one_line():
    with pytest.raises(ValueError, match="field: must be something else, got 3"):
        jobs.start(refuse).result()
    job = jobs.start(pool.runs_of_plan, Plan(model="llama-3.1-70b"), 5, None)
    with pytest.raises(ValueError, match=r"^plan: one request of 8,192 tokens needs [^\n]*$"):
        job.result()


def test_another_error_is_told_as_it_is_and_the_process_goes_on():
    with pytest.raises(RuntimeError, match="not of the kind"):
        jobs.start(unable).result()
    assert jobs.start(add, 1, 1).result() == 2


def test_work_that_cannot_be_sent_is_an_error_and_the_process_goes_on():
    job = jobs.start(lambda progress: 1)
    wait_for(lambda: job.is_over)
    with pytest.raises(Exception, match="pickle"):
        job.result()
    assert jobs.start(add, 1, 1).result() == 2


# How far it is


def test_it_tells_how_far_it_is_until_it_is_done(tmp_path):
    job = jobs.start(until_there, str(tmp_path / "end"))
    wait_for(lambda: job.share_done == 0.5)
    assert not job.is_over
    (tmp_path / "end").touch()
    assert job.result() == "done"
    assert job.is_over


def test_a_run_of_many_requests_tells_how_far_both_policies_are():
    job = jobs.start(pool.runs_of_plan, Plan(max_num_seqs=256), 100_000, None)
    seen = []
    wait_for(lambda: seen.append(job.share_done) or job.is_over)
    assert seen == sorted(seen)
    assert 0 <= seen[0] <= job.share_done == 1
    assert job.result().number == 100_000


def test_nothing_to_do_is_done():
    job = jobs.start(nothing_to_do)
    assert job.result() is True
    assert job.share_done == 1


def test_a_place_that_is_used_again_begins_at_0(tmp_path, monkeypatch):
    worker = jobs.the_worker()
    monkeypatch.setattr(worker, "places", iter([7, 7, 7]))
    assert jobs.start(add, 1, 1).result() == 2
    first = jobs.start(until_there, str(tmp_path / "end"))
    assert first.share_done < 1
    first.cancel()
    (tmp_path / "end").touch()
    wait_for(lambda: first.is_over)
    assert jobs.start(nothing_to_do).result() is True


# One after another, and cancelled


def test_a_second_job_waits_for_the_first(tmp_path):
    first, second = jobs.start(until_there, str(tmp_path / "end")), jobs.start(add, 2, 3)
    wait_for(lambda: first.share_done == 0.5)
    assert (second.share_done, second.is_over) == (0, False)
    (tmp_path / "end").touch()
    assert second.result() == 5
    assert first.is_over


def test_a_job_that_runs_is_stopped_by_its_progress():
    job = jobs.start(until_cancelled)
    wait_for(lambda: job.share_done == 0.5)
    job.cancel()
    with pytest.raises(ValueError, match="the run was stopped"):
        job.result()


def test_a_run_of_a_plan_is_stopped_the_next_time_it_tells_how_far_it_is():
    job = jobs.start(pool.runs_of_plan, Plan(max_num_seqs=256), 1_000_000, None)
    wait_for(lambda: job.share_done > 0)
    job.cancel()
    with pytest.raises(ValueError, match="the run was stopped"):
        job.result()
    assert job.share_done < 1


def test_a_job_that_waits_is_cancelled_before_it_begins(tmp_path):
    first = jobs.start(until_there, str(tmp_path / "end"))
    waiting = [jobs.start(until_cancelled) for _ in range(4)]
    for job in waiting:
        job.cancel()
    (tmp_path / "end").touch()
    assert first.result() == "done"
    for job in waiting:
        wait_for(lambda job=job: job.is_over)
        # Handed to the process already, or not yet.
        with pytest.raises((CancelledError, ValueError)):
            job.result()
    assert jobs.start(add, 2, 3).result() == 5


def test_cancelling_what_is_over_changes_nothing():
    job = jobs.start(add, 2, 3)
    assert job.result() == 5
    job.cancel()
    assert (job.is_over, job.result()) == (True, 5)
    assert jobs.start(add, 2, 4).result() == 6


ENDS_WITH_WORK = """
import time
from test_jobs import until_cancelled
from kvplan.dashboard import jobs

if __name__ == "__main__":
    job, waiting = jobs.start(until_cancelled), jobs.start(until_cancelled)
    while job.share_done < 0.5:
        time.sleep(0.01)
"""


def test_a_server_that_ends_does_not_wait_for_its_work(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(ENDS_WITH_WORK)
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[1])))}
    run = subprocess.run(
        [sys.executable, script], env=os.environ | paths, timeout=LONGEST_WAIT_S, stderr=subprocess.PIPE
    )
    assert run.returncode == 0


def test_what_nobody_holds_any_more_is_cancelled():
    held = [jobs.start(until_cancelled)]
    future = held[0].future
    wait_for(lambda: held[0].share_done == 0.5)
    held.clear()
    wait_for(future.done)
    assert str(future.exception()) == "the run was stopped"


def test_what_is_over_cancels_nothing_that_has_its_place_now(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs.the_worker(), "places", iter([7, 7]))
    first = jobs.start(add, 1, 1)
    assert first.result() == 2
    second = jobs.start(until_there, str(tmp_path / "end"))
    first.cancel()
    del first
    assert not jobs.the_worker().cancelled[7]
    (tmp_path / "end").touch()
    assert second.result() == "done"


def test_who_comes_when_too_many_wait_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_JOBS", 3)
    waiting = [jobs.start(until_there, str(tmp_path / "end")) for _ in range(3)]
    late = jobs.start(add, 1, 1)
    assert late.is_over
    with pytest.raises(ValueError, match="wait already; choose it again in a minute"):
        late.result()
    waiting.pop().cancel()
    wait_for(lambda: not jobs.the_worker().is_full)
    again = jobs.start(add, 1, 1)
    (tmp_path / "end").touch()
    assert again.result() == 2


def test_what_takes_too_long_is_stopped(monkeypatch):
    """The limit is set where the work is done, so this is the function that runs there."""
    monkeypatch.setattr(jobs, "LONGEST_S", -1)
    monkeypatch.setattr(jobs, "_shared", ([0.0], [0]))
    with pytest.raises(ValueError, match="stopped after 5 minutes, as others wait; a shell runs it to its end"):
        jobs._work(0, until_cancelled, ())


def test_a_session_has_one_job_at_a_time():
    fleet = jobs.of_session("fleet_job", "a plan", lambda: jobs.start(until_cancelled))
    assert jobs.of_session("fleet_job", "a plan", lambda: pytest.fail("begun twice")) is fleet
    assert jobs.of_session("long_job", "none", None) is None
    assert not fleet.is_over
    long = jobs.of_session("long_job", "many", lambda: jobs.start(add, 1, 1))
    wait_for(lambda: fleet.is_over)
    assert long.result() == 2
    other = jobs.of_session("fleet_job", "a plan", lambda: jobs.start(add, 2, 2))
    assert other.result() == 4
    assert jobs.of_session("long_job", "many", lambda: pytest.fail("what is over is kept")) is long


# When the process dies


def test_work_whose_process_was_killed_says_so_in_one_line_and_the_next_goes_on(kill_worker):
    job = jobs.start(until_cancelled)
    wait_for(lambda: job.share_done == 0.5)
    broken = kill_worker()
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        job.result()
    assert str(error.value) == jobs.BROKEN
    assert job.is_over
    again = jobs.start(add, 2, 3)
    assert again.result() == 5
    assert jobs.the_worker() is not broken
    assert again.worker is jobs.the_worker()


def test_a_process_that_died_while_nobody_asked_is_started_anew(kill_worker):
    assert jobs.start(add, 1, 1).result() == 2
    job = jobs.start(until_cancelled)
    wait_for(lambda: job.share_done == 0.5)
    broken = kill_worker()
    wait_for(lambda: job.is_over)
    assert jobs.start(add, 2, 3).result() == 5
    assert jobs.the_worker() is not broken


def test_of_several_jobs_of_a_process_that_died_each_says_so_and_none_takes_the_new_one_away(kill_worker):
    """What waited is lost as well; asked for later, it leaves alone the process that was started since."""
    first, second = jobs.start(until_cancelled), jobs.start(add, 1, 1)
    wait_for(lambda: first.share_done == 0.5)
    kill_worker()
    with pytest.raises(ValueError, match="choose it again"):
        first.result()
    again = jobs.start(add, 2, 3)
    started = jobs.the_worker()
    with pytest.raises(ValueError, match="choose it again"):
        second.result()
    assert again.result() == 5
    try:
        assert jobs.the_worker() is started
    finally:
        if jobs.the_worker() is not started:
            shut_down(started)


def test_a_report_is_made_while_the_worker_is_busy(tmp_path):
    job = jobs.start(until_there, str(tmp_path / "end"))
    wait_for(lambda: job.share_done == 0.5)
    assert evaluate(Plan()).engine.fits
    assert not job.is_over
    (tmp_path / "end").touch()
    assert job.result() == "done"
