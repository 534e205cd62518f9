"""The first steps as they are written: the file, what `check` prints of it, and what the page answers."""

import re
import textwrap
from pathlib import Path

from test_cli import called

from kvplan import evaluate, load_preset
from kvplan.verdict import ceiling, plain

TEXT = (Path(__file__).parents[1] / "docs" / "first-steps.md").read_text(encoding="utf-8")
FILE, CURE = re.findall(r"```toml\n(.+?)```", TEXT, re.S)
SHOWN = re.findall(r"^    \$ kvplan (.+)\n((?:    [^$].*\n)+)    \$ echo \$\?\n    (\d)\n", TEXT, re.M)


def test_the_gate_fails_as_written_and_passes_with_the_line_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cured = FILE.replace("\n[expect]", f"{CURE}\n[expect]")
    assert [code for _, _, code in SHOWN] == ["1", "0"]
    for text, (command, printed, code) in zip((FILE, cured), SHOWN, strict=True):
        Path("capacity.toml").write_text(text, encoding="utf-8")
        run = called(*command.split())
        assert (str(run.returncode), run.stderr) == (code, "")
        assert run.stdout == textwrap.dedent(printed)


def test_the_answer_in_the_browser_is_the_plans_own():
    report = evaluate(load_preset("llama-70b-chat-4xh100"))
    assert f"**{plain(ceiling(report).sentence)}** stands at the top" in TEXT
    assert f"*On demand* says {report.capacity.on_demand_ceiling}:" in TEXT
