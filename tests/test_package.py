"""What somebody gets who installs the wheel: the presets travel in it, and nothing of the checkout is needed."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from kvplan import Plan, accuracy, evaluate, presets
from kvplan.version import VERSION

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "kvplan", "presets")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command, cwd, **environment):
    """What a command prints; where it fails, the test says what it had to say."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy, so that the checkout stays clean."""
    checkout, wheels = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheels")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, checkout)
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", str(wheels), ".", cwd=checkout)
    (built,) = wheels.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder the wheel was installed into."""
    target = tmp_path_factory.mktemp("installed")
    run(*PIP, "install", "--no-deps", "--target", str(target), str(wheel), cwd=target)
    return target


def test_the_wheel_is_named_after_the_version_and_needs_numpy_and_pydantic_only(wheel):
    assert wheel.name == f"kvplan-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"kvplan-{VERSION}.dist-info/METADATA").decode())
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(line.split("~")[0] for line in needed) == ["numpy", "pydantic"]


def test_the_wheel_holds_every_preset_every_module_and_both_licence_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    shipped = {f"kvplan/{path.relative_to(ROOT)}" for path in (ROOT / "presets").rglob("*.json")}
    assert "kvplan/presets/starts/starts.json" in shipped
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "kvplan").rglob("*.py")}
    licences = {f"kvplan-{VERSION}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")}
    assert shipped | modules | licences <= names
    assert not [name for name in names if name.startswith(("tests", "presets", "docs"))]


def test_an_installed_kvplan_finds_its_presets_and_says_the_same(installed, tmp_path):
    program = """
import json, pathlib, kvplan
from kvplan import Plan, accuracy, catalog, evaluate, presets
ids = {kind: presets(kind) for kind in ("model", "gpu", "workload", "plan")}
folders = [str(pathlib.Path(kvplan.__file__).parent), str(catalog.presets_dir())]
starts = [start.id for start in accuracy.starts()]
print(json.dumps([folders, ids, starts, evaluate(Plan(model="llama-3.1-70b", tp=4)).to_dict()]))
"""
    folders, ids, starts, report = json.loads(
        run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(installed))
    )
    assert folders == [str(installed / "kvplan"), str(installed / "kvplan/presets")]
    assert ids == {kind: presets(kind) for kind in ("model", "gpu", "workload", "plan")}
    assert starts == [start.id for start in accuracy.starts()]
    assert report == json.loads(json.dumps(evaluate(Plan(model="llama-3.1-70b", tp=4)).to_dict()))


def test_an_installed_kvplan_has_its_command(installed, tmp_path):
    expected = json.loads(json.dumps(evaluate(Plan(tp=2)).to_dict()))
    for command in ([sys.executable, "-m", "kvplan"], [str(installed / "bin/kvplan")]):
        printed = run(*command, "report", "--json", "--set", "tp=2", cwd=tmp_path, PYTHONPATH=str(installed))
        assert json.loads(printed) == expected
    assert list(tmp_path.iterdir()) == []
