"""The documents say what the code computes: every block, every figure and every link of docs/ and the README.

Blocks of Python are doctests of their own (`testpaths` and `--doctest-glob` in pyproject.toml).
"""

import argparse
import re
import shlex
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from test_cli import called
from test_traces import LINK_RESIDENT_BOUND, LINK_UTILISATION_BOUND, LONGEST_WORD
from test_workloads import CLIPPED_BOUND, CONTEXTS, LARGEST_BATCH, RESIDENT_BOUND, UTILISATION_BOUND

from kvplan import (
    Plan,
    accuracy,
    accuracy_document,
    cli,
    decode_link,
    evaluate,
    hf_config,
    links,
    load_preset,
    log_text,
    model_from_hf_config,
    parse_engine_log,
    plan_files,
    pool,
    presets,
    rate_accuracy,
    rate_document,
    sweep_axes,
    sweep_grid,
    texts,
    trace_formats,
    traces,
)
from kvplan.dashboard import jobs, trace_reader
from kvplan.engine_facts import ENGINE_VERSION, PACKED_MLA_BYTES
from kvplan.expectations import EXPECTATIONS
from kvplan.links import decode_comparison
from kvplan.scheduler import STEPS_A_CALL
from kvplan.startup_facts import POOL_BAND
from kvplan.sweep import MOST_POINTS

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
HEADLESS = DOCUMENTS["docs/headless.md"]
WHY = DOCUMENTS["docs/why-the-engine-says-something-else.md"]
PLAN = re.compile(r"^\| \[(?P<title>[^]]+)\]\(http://localhost:8501/\?(?P<query>[^)]+)\) \| (?P<figures>.+) \|$", re.M)
FIGURE = re.compile(r"`([a-z_.]+)` (\d+(?:,\d{3})*(?:\.\d+)?|True|False)")
SECTION = re.compile(r"^## (\d+)\. .+$", re.M)
PLANS = [match.groupdict() for match in PLAN.finditer(WHY)]


def as_printed(value) -> str:
    """A figure as the document writes it."""
    return f"{value:,.2f}" if isinstance(value, float) else str(value) if isinstance(value, bool) else f"{value:,}"


def figure(report: dict, path: str):
    for name in path.split("."):
        report = report[name]
    return report


@pytest.mark.parametrize(("name", "written"), [("accuracy", accuracy_document), ("throughput", rate_document)])
def test_a_document_is_what_the_code_computes(name, written):
    assert DOCUMENTS[f"docs/{name}.md"] == written.document()


def test_twenty_differences_are_explained_and_each_has_plans_that_show_it():
    sections = SECTION.split(WHY)[1:]
    assert [int(number) for number in sections[::2]] == list(range(1, 21))
    assert all(PLAN.search(text) for text in sections[1::2])
    assert WHY.count("http://localhost:8501/") == len(PLANS)


@pytest.mark.parametrize("row", PLANS, ids=[row["title"] for row in PLANS])
def test_the_figures_of_a_linked_plan_are_those_of_its_report(row):
    plan, notes = decode_link(row["query"])
    assert notes == []
    report = evaluate(plan).to_dict()
    figures = FIGURE.findall(row["figures"])
    assert ", ".join(f"`{name}` {value}" for name, value in figures) == row["figures"]
    assert [(name, as_printed(figure(report, name))) for name, _ in figures] == figures


# Every block

COMMAND = re.compile(r"(?P<shown>\$ )?(?:python -m )?kvplan (?P<words>.+)")


class Shown(NamedTuple):
    """A command of a document, and what it prints there: nothing where only the command is shown."""

    page: str
    words: tuple[str, ...]
    printed: str


def shown_commands(page: str, text: str) -> list[Shown]:
    """The commands of the indented blocks of a page; `$` before one means that what follows is printed."""
    found = []
    for block in re.findall(r"(?:^    .*\n)+", text.replace("\\\n", ""), re.M):
        for line in textwrap.dedent(block).splitlines(keepends=True):
            match = COMMAND.match(line)
            if match:
                words = shlex.split(re.split(" (?:&&|>) ", match["words"])[0], comments=True)
                found.append(Shown(page, tuple(words), ""))
            elif found and found[-1].page == page and "$ " in block:
                found[-1] = found[-1]._replace(printed=found[-1].printed + line)
    return found


IN_ORDER = "docs/first-steps.md"
"""Its commands hang on a file that is written on the way: `test_first_steps` takes the steps one after another."""
SHOWN = [shown for page, text in DOCUMENTS.items() if page != IN_ORDER for shown in shown_commands(page, text)]


def commands() -> set[str]:
    """The commands there are."""
    (found,) = (action for action in cli._parser()._actions if isinstance(action, argparse._SubParsersAction))
    return set(found.choices)


@pytest.fixture
def beside_docs(tmp_path, monkeypatch):
    """An empty folder that has the documents' files, so that what a command writes lands in it."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("shown", SHOWN, ids=[f"{shown.page}: {' '.join(shown.words)}" for shown in SHOWN])
@pytest.mark.usefixtures("beside_docs")
def test_a_command_runs_and_prints_what_is_shown(shown):
    run = called(*shown.words)
    assert run.returncode == 0
    assert run.stdout == shown.printed or not shown.printed


def test_commands_are_found_with_what_they_print():
    text = (
        "    $ kvplan check a && next\n    one\n     two\n\nText\n\n    python -m kvplan link \\\n  --short  # what\n"
    )
    assert shown_commands("page", text) == [
        Shown("page", ("check", "a"), "one\n two\n"),
        Shown("page", ("link", "--short"), ""),
    ]
    assert {shown.words[0] for shown in SHOWN if shown.printed} >= {"check", "sweep", "link"}


def test_the_readme_and_the_page_on_headless_use_name_every_command():
    readme = {shown.words[0] for shown in SHOWN if shown.page == "README.md"}
    assert commands() - readme == {"batching", "paging", "throughput"}
    assert "# batching, paging, throughput: " in DOCUMENTS["README.md"]
    rows = "".join(line for line in HEADLESS.splitlines() if line.startswith("| `"))
    assert {name for name in commands() if f"`{name}`" not in rows} == set()


def test_every_block_of_python_is_a_doctest_and_every_document_is_collected():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-glob=*.md" in options["addopts"]
    assert {"README.md", "CONTRIBUTING.md", "docs"} <= set(options["testpaths"])
    blocks = {page: re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) for page, text in DOCUMENTS.items()}
    words = {page: {word for word, _ in found} for page, found in blocks.items()}
    assert words.pop(IN_ORDER) == {"toml"}
    assert set().union(*words.values()) <= {"python", "json"}
    assert [body for found in blocks.values() for word, body in found if word == "python" and ">>>" not in body] == []


# Every figure

TOPICS = ("README", "formulas", "engine-rules", "links", "workloads", "limits", "safety", "glossary")
FIGURED = ("README.md", *(f"docs/{name}.md" for name in TOPICS))
"""Pages whose prose has no figure above ten but those of its blocks, of its linked plans and of `CONSTANTS`."""
NUMBER = re.compile(r"(?<![\w.,/#-])(?:\d[\d,]*\d|\d)(?:\.\d+)?%?(?![\w^]|[.,]\d|-\w)")
NOT_PROSE = (
    r"^```.*?^```$",  # what runs
    r"^ {4,}.*$",  # formulas and commands
    r"`[^`\n]*`",
    r"\]\([^)]*\)",
    r"^\d+\. ",
    r"^Source: (?:.+\n)+",
    r"\d+\^\S+",
    rf"{re.escape(ENGINE_VERSION)}(?:\.\d+)?",
    r"\b(?:19|20)\d\d\b",
)
"""What is no figure: code, formulas, addresses, numbers of lists, the literature, powers, the engine's version, years
(thousands have a comma)."""
PERCENT = re.findall(r"[\d.]+%", accuracy_document.opening())
CONSTANTS = {
    "README.md": {
        **{share: share for share in PERCENT},
        "160": len(presets("model")),
        "51": len(presets("gpu")),
        "3.11": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">="),
    },
    "docs/formulas.md": {"656": PACKED_MLA_BYTES},
    "docs/links.md": {"16,384": links.MAX_LENGTH},
    "docs/limits.md": {
        "4%": POOL_BAND,
        "25%": rate_accuracy.TOLERANCE["tpot_s"][1] - 1,
        "112": len(accuracy.starts()),
        "38": len(rate_accuracy.points()),
    },
    "docs/safety.md": {
        "16,384": links.MAX_LENGTH,
        "1,000": links.MOST_PARAMETERS,
        "20": links.MOST_NOTES,
        "300": links.LONGEST_NOTE,
        "4,096": texts.MAX_TEXT,
        "65,536": texts.MAX_INFLATED,
        "1": hf_config.MAX_MB,
        "64": trace_reader.MAX_TRACE_MB,
        "2,000,000": trace_reader.MAX_ROWS,
        "20,000,000": trace_formats.MAX_LINES,
        "2": trace_formats.MAX_TEXT_GB,
        "16,777,216": trace_formats.MAX_LINE,
        "10,000": trace_formats.MAX_COLUMNS,
        "5": log_text.MAX_MIB,
        "100,000": log_text.MAX_LINES,
        "1,048,576": plan_files.MAX_BYTES,
        "40": sweep_axes.MOST_VALUES,
        "1,600": sweep_grid.MOST_CELLS,
        "400": sweep_grid.MOST_ONE_BY_ONE,
        "12,000": pool.MOST_AT_ONCE,
        "400,000": pool.MOST_REPORTS * STEPS_A_CALL,
        "32": jobs.MOST_JOBS,
    },
    "docs/workloads.md": {
        "0.5%": UTILISATION_BOUND,
        "0.6%": RESIDENT_BOUND,
        "9%": CLIPPED_BOUND,
        "1.2%": LINK_UTILISATION_BOUND,
        "7%": LINK_RESIDENT_BOUND,
        "1,024": LARGEST_BATCH,
        "256": int(CONTEXTS[0]),
        "32,768": int(CONTEXTS[-1]),
        "1,200": LONGEST_WORD,
    },
}
"""Figures of the prose that the code or a test holds as a constant: as they are written, and the constant."""


def numbers(text: str) -> set[str]:
    """The numbers of a text, without the signs between thousands."""
    return {found.replace(",", "").replace("_", "") for found in re.findall(r"\d[\d,_]*(?:\.\d+)?%?", text)}


def unverified(page: str, text: str, constants: dict) -> list[str]:
    """Figures of the prose of a page that nothing on it computes."""
    computed = numbers("".join(re.findall(NOT_PROSE[0], text, re.M | re.S)))
    computed |= {number for shown in shown_commands(page, text) for number in numbers(shown.printed)}
    for name in names_of_presets():
        text = text.replace(name, "")
    for pattern in NOT_PROSE:
        text = re.sub(pattern, "", text, flags=re.M | (re.S if pattern == NOT_PROSE[0] else 0))
    found = [figure for figure in NUMBER.findall(text) if figure.endswith("%") or "." in figure or len(figure) > 1]
    return [each for each in found if each not in ("10", *constants) and each.replace(",", "") not in computed]


def names_of_presets() -> list[str]:
    """Names as the documents write them, the longest first: Llama 3.1 70B is no figure."""
    return sorted((load_preset(each, "model").name for each in presets("model")), key=len, reverse=True)


def as_written(value, figure: str) -> str:
    """A constant as a document writes it, with as many decimals as `figure` has."""
    if isinstance(value, float):
        return f"{100 * value:.{len(figure.rstrip('%').partition('.')[2])}f}%"
    return value if isinstance(value, str) else f"{value:,}"


@pytest.mark.parametrize("page", FIGURED)
def test_no_figure_stands_in_prose_that_nothing_on_its_page_computes(page):
    assert unverified(page, DOCUMENTS[page], CONSTANTS.get(page, {})) == []


def test_a_figure_that_stands_for_several_limits_is_each_of_them():
    assert trace_reader.MAX_TRACE_MB == traces.MAX_DOCUMENT_MB
    assert trace_reader.MAX_ROWS == traces.MAX_HASHES
    assert trace_formats.MAX_LINES == MOST_POINTS
    assert jobs.LONGEST_S == links.LONGEST_NOTE == 300


@pytest.mark.parametrize("page", CONSTANTS)
def test_a_constant_of_the_prose_is_that_of_the_code_and_is_there(page):
    for figure, value in CONSTANTS[page].items():
        assert as_written(value, figure) == figure
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", DOCUMENTS[page]), figure


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("On four devices 1,234 tokens fit, 5.5 GiB or 12%.", ["1,234", "5.5", "12%"]),
        ("A table | 77 |", ["77"]),
        ("At 10^9 and 2^30, Llama 3.1 70B in bf16 on H100 by vLLM 0.32 takes 8 or 10 blocks of `999`.", []),
        ("1. first\n\nSource: Kwon, 2023,\nSOSP 29.\n\n    55 x 66\n\n[links](a-88.md#77), 2023", []),
        ("```python\n>>> 1_234\n```\n\nThat is 1,234 tokens and not 1,235.", ["1,235"]),
        ("    $ kvplan link\n    4321\n\nThat is 4,321.", []),
    ],
)
def test_the_checker_finds_a_figure_that_nothing_computes(text, found):
    assert unverified("page", text, {}) == found


def test_every_expectation_is_explained_as_the_code_has_it():
    rows = [f"| `{name}` | {each.unit or '–'} | {each.what} |" for name, each in EXPECTATIONS.items()]
    assert "\n".join(rows) in HEADLESS


def test_the_sample_log_has_the_figures_of_the_start_it_names():
    log = parse_engine_log((ROOT / "docs/samples/vllm.log").read_text())
    (start,) = (start for start in accuracy.starts() if start.id == "start-027")
    assert "`start-027`" in (ROOT / "docs/samples/README.md").read_text()
    posted = start.posted
    assert (log.weights_gib, log.available_kv_gib) == (posted.weights_gib, posted.pool_gib)
    assert (log.kv_cache_tokens, log.max_concurrency) == (posted.kv_cache_tokens, posted.max_concurrency)
    assert (log.tp, log.max_model_len) == (start.plan.tp, start.plan.context)


def test_the_sample_config_is_cached_as_its_preset():
    plan = Plan(context=32768, kv_cache_memory_bytes=2**35)
    model = model_from_hf_config(ROOT / "docs/samples/config.json")
    assert evaluate(plan, model=model).engine == evaluate(plan.model_copy(update={"model": "gpt-oss-20b"})).engine


# Every link

LINK = re.compile(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(NOT_PROSE[0], "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page):
    folder = (ROOT / page).parent
    for file, anchor in LINK.findall(DOCUMENTS[page]):
        target = (folder / file).resolve() if file else ROOT / page
        assert target.exists(), file
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{file}#{anchor}"


def test_every_document_is_in_the_index_and_the_readme_leads_to_the_index():
    index = {file for file, _ in LINK.findall(DOCUMENTS["docs/README.md"])}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= index
    assert ("docs/README.md", "") in LINK.findall(DOCUMENTS["README.md"])


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_linked_plan_opens_without_a_complaint(page):
    queries = re.findall(
        r"http://localhost:8501/(?:[\w-]*)\?([^'\s)`]+)", re.sub(NOT_PROSE[0], "", DOCUMENTS[page], flags=re.M | re.S)
    )
    assert [notes for notes in (decode_comparison(query)[1] for query in queries) if notes] == []


def test_the_readme_is_read_in_two_screens():
    lines = DOCUMENTS["README.md"].splitlines()
    assert len(lines) <= 110
    assert [line for line in lines if len(line) > 120 and not line.startswith("![")] == []
