"""The fixture for capacity tests of one's own, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest_plugins = ["pytester"]
TEST = """
from kvplan import evaluate

def test_every_plan_meets_its_limits(planned):
    assert planned.missed == []

def test_the_engine_runs_as_many_as_we_need(planned):
    assert evaluate(planned.plan).engine.max_concurrency == planned.report.engine.max_concurrency >= 8
    assert planned.expect["min_batch_ceiling"] == planned.verdicts[0].limit
"""
MET = "kv_cache_memory_bytes = 8589934592\n[expect]\nmin_batch_ceiling = 8\n"
MISSED = "kv_cache_memory_bytes = 8589934592\n[expect]\nmin_batch_ceiling = 9\n"


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    pytester.makeconftest('pytest_plugins = ["kvplan.pytest_plugin"]')
    pytester.makepyfile(TEST)
    return pytester


def plan_file(project, name, text, folder="plans"):
    (project.path / folder).mkdir(parents=True, exist_ok=True)
    (project.path / folder / name).write_text(text)


def run(project, *arguments):
    return project.runpytest_inprocess("-p", "no:cacheprovider", "-v", *arguments)


def test_each_plan_file_of_the_folder_is_a_test_of_its_own(project):
    plan_file(project, "one.toml", MET)
    plan_file(project, "two.json", '{"tp": 2, "expect": {"min_batch_ceiling": 1}}')
    plan_file(project, "notes.txt", "no plan")
    result = run(project)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*limits?one.toml? PASSED*", "*limits?two.json? PASSED*"])


def test_a_limit_that_is_missed_is_a_failure_in_words(project):
    plan_file(project, "one.toml", MISSED)
    result = run(project)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*min_batch_ceiling: 8 sequences, must be at least 9*"])


def test_a_file_that_cannot_be_read_is_an_error_of_one_line(project):
    plan_file(project, "one.toml", "tp = 0")
    result = run(project)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["one.toml: tp: Input should be greater than or equal to 1, got 0"])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("made", [True, False], ids=["empty", "missing"])
def test_a_folder_without_plans_is_an_error_and_no_skipped_test(project, made):
    if made:
        plan_file(project, "notes.txt", "no plan")
    result = run(project)
    assert result.ret != 0
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*kvplan_plans: no plan file (.json, .toml) in {project.path / 'plans'}*"])


def test_the_folder_is_an_option_beside_the_ini_file(project):
    project.makeini("[pytest]\nkvplan_plans = deploy/capacity\n")
    plan_file(project, "one.toml", MET, "deploy/capacity")
    run(project).assert_outcomes(passed=2)


def test_tests_without_the_fixture_need_no_folder(pytester, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    pytester.makepyfile("def test_nothing():\n    pass\n")
    pytester.runpytest_inprocess("-p", "kvplan.pytest_plugin", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_nothing_else_of_kvplan_imports_it():
    program = "import sys, kvplan, kvplan.cli, kvplan.cli_check, kvplan.plan_files; print('pytest' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
