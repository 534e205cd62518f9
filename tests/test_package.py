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


# A machine of its own


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """Where the command stands after `pip install` of the wheel into an environment with nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", str(folder), cwd=folder)
    run(str(folder / "bin/python"), *PIP[1:], "install", str(wheel), cwd=folder)
    return folder / "bin"


def in_empty_folder(bare, folder, *command):
    """One command of the bare machine, of which nothing of this one is left over."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(bare / command[0]), *command[1:]], cwd=folder, env=clean, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_pip_installs_the_core_and_no_dashboard(bare, tmp_path):
    code, listed, _ = in_empty_folder(bare, tmp_path, "python", "-m", "pip", "list", "--format=freeze")
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert code == 0
    assert {"kvplan", "numpy", "pydantic"} <= names
    assert not names & {"streamlit", "plotly", "pandas", "pyarrow", "distributed", "pytest"}


def test_the_command_runs_in_an_empty_folder(bare, tmp_path):
    assert in_empty_folder(bare, tmp_path, "kvplan", "--version") == (0, f"kvplan {VERSION}\n", "")
    code, printed, _ = in_empty_folder(bare, tmp_path, "kvplan", "report", "--json", "--set", "tp=2")
    assert (code, json.loads(printed)) == (0, json.loads(json.dumps(evaluate(Plan(tp=2)).to_dict())))
    assert list(tmp_path.iterdir()) == []


def test_the_gate_and_a_sweep_run_in_an_empty_folder(bare, tmp_path):
    (tmp_path / "plan.toml").write_text("context = 32768\n[expect]\nmin_batch_ceiling = 13\n")
    assert in_empty_folder(bare, tmp_path, "kvplan", "check", "plan.toml")[0] == 0
    code, table, _ = in_empty_folder(
        bare, tmp_path, "kvplan", "sweep", "--axis", "tp=1,2", "--columns", "capacity.batch_ceiling"
    )
    ceilings = [evaluate(Plan(tp=tp)).capacity.batch_ceiling for tp in (1, 2)]
    assert (code, table) == (0, f"tp,capacity.batch_ceiling\n1,{ceilings[0]}\n2,{ceilings[1]}\n")


@pytest.mark.parametrize(
    ("options", "extra"), [(["-o", "found.parquet"], "dashboard"), (["--dask", "tcp://127.0.0.1:1"], "dask")]
)
def test_what_an_extra_brings_is_asked_for_by_name(bare, tmp_path, options, extra):
    code, _, message = in_empty_folder(bare, tmp_path, "kvplan", "sweep", "--axis", "tp=1", *options)
    assert code == 2
    assert message.endswith(f"comes with pip install 'kvplan[{extra}]'\n")


def test_the_extra_for_the_dashboard_is_what_requirements_install(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"kvplan-{VERSION}.dist-info/METADATA").decode())
    extra = {line.partition(";")[0] for line in metadata.get_all("Requires-Dist") if "dashboard" in line}
    core = {line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    listed = {line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")}
    assert extra | core == listed
