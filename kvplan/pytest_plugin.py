"""A fixture for capacity tests of one's own: `planned`, once for every plan file of a folder.

    pytest_plugins = ["kvplan.pytest_plugin"]                            # conftest.py

    def test_every_plan_meets_its_limits(planned):
        assert planned.missed == []

The folder is the ini option `kvplan_plans`, beside the ini file; `plans` unless set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kvplan.check import Verdict, judge, sentence
from kvplan.expectations import Limit
from kvplan.plan import Plan
from kvplan.plan_files import PARSERS, read_plan_file
from kvplan.report import Report, evaluate

FOLDER = "kvplan_plans"


@dataclass(frozen=True)
class Planned:
    """A plan file, what it holds, and what kvplan says of it."""

    file: Path
    plan: Plan
    expect: dict[str, Limit]
    report: Report
    verdicts: tuple[Verdict, ...]

    @property
    def missed(self) -> list[str]:
        """The limits that are not met, in words; empty if all are."""
        return [sentence(verdict) for verdict in self.verdicts if not verdict.passed]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(FOLDER, "folder of kvplan's plan files, beside this file", default="plans")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "planned" not in metafunc.fixturenames:
        return
    folder = metafunc.config.rootpath / metafunc.config.getini(FOLDER)
    files = sorted(path for path in folder.glob("*") if path.suffix.lower() in PARSERS)
    if not files:
        # Tests that vanish with their folder would pass.
        pytest.fail(f"{FOLDER}: no plan file ({', '.join(PARSERS)}) in {folder}", pytrace=False)
    metafunc.parametrize("planned", files, ids=[path.name for path in files], indirect=True)


@pytest.fixture
def planned(request: pytest.FixtureRequest) -> Planned:
    """One plan file of the folder."""
    try:
        found = read_plan_file(request.param)
    except ValueError as error:
        pytest.fail(f"{request.param.name}: {error}", pytrace=False)
    report = evaluate(found.plan)
    return Planned(request.param, found.plan, found.expect, report, judge(report, found.expect))
