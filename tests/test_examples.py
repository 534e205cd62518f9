"""Each example runs and prints what stands beside it."""

import contextlib
import io
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
LONGEST = 30


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_prints_what_is_expected(path, tmp_path, monkeypatch):
    """In an empty folder, so that none depends on where it is started."""
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(path), run_name="__main__")
    assert printed.getvalue() == path.with_suffix(".out").read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == []


def test_examples_are_numbered_from_one_and_each_has_its_output():
    assert [path.name[:3] for path in EXAMPLES] == [f"{number:02}_" for number in range(1, len(EXAMPLES) + 1)]
    outputs = sorted(path.stem for path in EXAMPLES[0].parent.glob("*.out"))
    assert outputs == [path.stem for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_is_short_and_says_what_it_shows(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST
    assert lines[0].startswith('"""')
    assert lines[0].endswith('."""')
