"""The shape of the code: which module may import which, who may draw, and that pages do not calculate."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from kvplan.palette import DARK, LIGHT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kvplan"
ORDER = (
    "version",
    "text_tables",
    "markdown",
    "spreadsheets",
    "arrays",
    "units",
    "engine_facts",
    "hf_facts",
    "lengths",
    "specs",
    "weights",
    "parameters",
    "hf_config",
    "texts",
    "plan",
    "differences",
    "trace_formats",
    "traces",
    "overrides",
    "startup_facts",
    "startup",
    "roofline_facts",
    "notes",
    "catalog",
    "checkpoints",
    "vllm_arguments",
    "vllm_args",
    "cache",
    "compressed",
    "refusals",
    "engine",
    "breakdown",
    "token_terms",
    "memory",
    "paging",
    "batching",
    "ceiling",
    "roofline",
    "throughput",
    "fleet",
    "traffic",
    "growth",
    "prefix_cache",
    "scheduler",
    "simulate",
    "allocators",
    "report",
    "backlog",
    "moments",
    "pool",
    "axes",
    "sweep",
    "sweep_axes",
    "sweep_grid",
    "sweep_files",
    "frontier",
    "fleet_search",
    "lever_ideas",
    "levers",
    "rates",
    "lifecycle",
    "shapes",
    "allocation",
    "blocks",
    "accuracy",
    "accuracy_document",
    "rate_accuracy",
    "rate_document",
    "ledger",
    "guide",
    "log_text",
    "log_patterns",
    "engine_log",
    "log_comparison",
    "recorded",
    "links",
    "plan_json",
    "comparison_json",
    "verdict",
    "report_words",
    "expectations",
    "check",
    "plan_files",
    "junit",
    "metrics",
    "guide_words",
    "throughput_words",
    "levers_words",
    "fleet_words",
    "fleet_tables",
    "sweep_words",
    "snippet",
    "curves",
    "compare",
    "compare_curves",
    "compare_words",
    "answers",
    "answer_words",
    "review",
    "review_markdown",
    "palette",
    "shades",
    "labels",
    "drawing",
    "figures",
    "pool_figures",
    "paging_figures",
    "throughput_figures",
    "levers_figures",
    "fleet_figures",
    "sweep_figures",
    "compare_figures",
    "charts",
    "figure_html",
    "review_html",
    "schemas",
    "cli_options",
    "cli_curves",
    "cli_figure",
    "cli_review",
    "cli_check",
    "cli_sweep",
    "cli",
    "__main__",
    "pytest_plugin",
    "dashboard",
)
"""Every module, lowest first: each imports only modules before it."""

SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
PAGES = sorted(path for path in (PACKAGE / "dashboard/pages").glob("*.py") if path.name != "__init__.py")
SCRIPTS = [*SOURCES, PACKAGE / "__init__.py", ROOT / "app.py"]
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
THEME = {
    "primaryColor": "pool",
    "backgroundColor": "page",
    "textColor": "ink",
    "blueColor": "pool",
    "greenColor": "held",
    "orangeColor": "wasted",
    "violetColor": "static",
    "redColor": "limit",
    "grayColor": "muted",
    "grayTextColor": "muted",
    "borderColor": "border",
}


def source_id(path):
    return str(path.relative_to(ROOT))


def module_of(path):
    """The name of a source as the order has it; everything in dashboard/ is one module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def outside_functions(tree):
    """The nodes that run when a module is imported."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from outside_functions(child)


def imported(nodes):
    """Dotted names that import statements ask for, `from a import b` as a.b."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def imported_modules(text):
    """Modules of the package that a source imports at its top level; `kvplan` for the package's own public names."""
    names = [name.split(".") for name in imported(outside_functions(ast.parse(text)))]
    inside = [name[1:] for name in names if name[0] == "kvplan"]
    return {name[0] if name and name[0] in ORDER else "kvplan" for name in inside}


def imported_packages(text):
    """Every package a source imports anywhere."""
    return {name.split(".")[0] for name in imported(ast.walk(ast.parse(text)))}


def is_text(node):
    """Whether an expression is a text, so that + joins and % formats."""
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def calculations(text):
    """The lines of a source that calculate, or import what calculates."""
    tree = ast.parse(text)
    found = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, (ast.BinOp, ast.AugAssign))
        and isinstance(node.op, ARITHMETIC)
        and not is_text(node.value if isinstance(node, ast.AugAssign) else node)
    ]
    return found + sorted(imported_packages(text) & {"numpy", "math", "statistics", "operator"})


def test_every_module_has_its_place_in_the_order_and_every_place_its_module():
    assert {module_of(path) for path in SOURCES} == set(ORDER)
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("path", SOURCES, ids=source_id)
def test_a_module_imports_only_modules_before_it(path):
    module = module_of(path)
    allowed = set(ORDER[: ORDER.index(module)])
    if module == "dashboard":
        allowed |= {"dashboard", "kvplan"}
    assert imported_modules(path.read_text()) <= allowed


def test_imports_inside_the_package_are_written_in_full():
    relative = [source_id(path) for path in SCRIPTS if "" in imported_packages(path.read_text())]
    assert relative == []


@pytest.mark.parametrize("path", SCRIPTS, ids=source_id)
def test_only_the_dashboard_imports_streamlit_and_pandas_and_only_it_and_figures_and_drawing_plotly(path):
    drawing = {"streamlit", "plotly", "pandas"}
    if (PACKAGE / "dashboard") in path.parents:
        allowed = drawing
    else:
        allowed = {
            "app.py": {"streamlit"},
            "kvplan/drawing.py": {"plotly"},
            "kvplan/figures.py": {"plotly"},
            "kvplan/pool_figures.py": {"plotly"},
            "kvplan/paging_figures.py": {"plotly"},
            "kvplan/throughput_figures.py": {"plotly"},
            "kvplan/levers_figures.py": {"plotly"},
            "kvplan/fleet_figures.py": {"plotly"},
            "kvplan/sweep_figures.py": {"plotly"},
            "kvplan/compare_figures.py": {"plotly"},
            "kvplan/figure_html.py": {"plotly"},
        }.get(source_id(path), set())
    assert imported_packages(path.read_text()) & drawing <= allowed


def test_nothing_below_drawing_needs_more_than_numpy_and_pydantic():
    below = [path for path in SOURCES if module_of(path) in ORDER[: ORDER.index("drawing")]]
    packages = set().union(*(imported_packages(path.read_text()) for path in below))
    assert packages - sys.stdlib_module_names == {"kvplan", "numpy", "pydantic", "pyarrow"}
    assert [source_id(path) for path in below if "pyarrow" in imported_packages(path.read_text())] == [
        "kvplan/sweep_files.py"
    ]


def test_the_reader_of_imports_sees_each_way_to_write_one():
    text = """
import json, kvplan.cache
from kvplan import engine, Plan
from kvplan.memory import budget
if True:
    from kvplan.paging import waste
def late():
    from kvplan import figures
    import pandas as pd
class Held:
    import kvplan
"""
    assert imported_modules(text) == {"cache", "engine", "memory", "paging", "kvplan"}
    assert imported_packages(text) == {"json", "kvplan", "pandas"}
    assert imported_packages("from . import cache") == {""}


def test_there_are_pages_to_look_at():
    assert {"ceiling", "batching", "paging"} <= {path.stem for path in PAGES}


@pytest.mark.parametrize("path", PAGES, ids=source_id)
def test_a_page_holds_no_arithmetic(path):
    assert calculations(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "a + b",
        "report.memory.pool_bytes / 2**30",
        "x = [n * 2 for n in lengths]",
        "frame.heading(f'{used / total:.0%}')",
        "total += part",
        "lambda n: n - 1",
        "n % 16",
        "n // 16",
        "2 ** n",
        "import numpy as np",
        "from math import ceil",
        "def f():\n    import math",
    ],
)
def test_the_checker_finds_a_calculation(text):
    assert calculations(text) != []


@pytest.mark.parametrize(
    "text",
    [
        "'a' + b",
        "b + f'{a}'",
        "'a' + b + c",
        "'%s' % b",
        "name += ' tokens'",
        "a | b",
        "a if b > c else -1",
        "not a",
        "figure(report, unit='share')",
        "import pandas as pd",
    ],
)
def test_the_checker_leaves_text_and_choices_alone(text):
    assert calculations(text) == []


@pytest.mark.parametrize(("theme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_the_theme_has_the_colours_of_the_charts(theme, palette):
    colours = tomllib.loads((ROOT / ".streamlit/config.toml").read_text())["theme"][theme]
    assert {name: colours[name] for name in THEME} == {name: getattr(palette, own) for name, own in THEME.items()}


@pytest.mark.parametrize(("theme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_the_theme_has_exactly_ten_colours_for_categories_and_each_is_one_of_the_palettes(theme, palette):
    colours = tomllib.loads((ROOT / ".streamlit/config.toml").read_text())["theme"][theme]["chartCategoricalColors"]
    assert len(colours) == len(set(colours)) == 10
    assert set(colours) <= set(vars(palette).values())


def test_no_button_is_of_the_primary_type():
    """Its text is white in both themes, and the dark theme's primary colour is a light blue."""
    primary = [source_id(path) for path in SOURCES if 'type="primary"' in path.read_text()]
    assert primary == []
