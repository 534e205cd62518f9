"""JSON Schemas of what the commands print, so that others can rely on it.

The number in a schema's name changes when a key is gone or means something else; keys may be added under the same one.
Descriptions are those of the code. `docs/schemas` holds them as files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter

from kvplan import answers, catalog, check, fleet_search, levers, log_comparison, plan_json, pool, report, sweep_files
from kvplan.breakdown import GroupCost
from kvplan.engine_log import EngineLog
from kvplan.fleet import Fleet
from kvplan.memory import Memory
from kvplan.plan import OPTIONAL, Plan
from kvplan.simulate import Simulation
from kvplan.specs import Source
from kvplan.sweep import every_column

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Scalar = int | float | bool | str | None


def schema_of(command: str) -> dict:
    """The schema of what a command prints with --json. Raises KeyError for a command that has none."""
    name, keys = COMMANDS[command]
    head = {} if command == "presets" else {"schema": Literal[name], "version": str}
    whole = _object(command.capitalize(), head | keys())
    found = TypeAdapter(whole).json_schema(mode="serialization")
    whole = _complete(found)
    # A plan as a file has only what is set.
    if command == "plan":
        whole["required"] = [key for key in whole["required"] if key not in OPTIONAL]
    return {"$schema": DIALECT, "$id": name} | whole


def _complete(part):
    """Every key a class has is printed, those at their defaults too."""
    if isinstance(part, list):
        return [_complete(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {name: _complete(value) for name, value in part.items() if name != "default"}
    if part.get("type") == "object" and "properties" in part:
        found["required"] = list(part["properties"])
    return found


def _object(name: str, keys: dict[str, Any], doc: str | None = None) -> type:
    """An object of these keys and types."""
    return make_dataclass(name, keys.items(), namespace={"__doc__": doc})


def _like(kind: type, **changed: Any) -> type:
    """An object with the fields of a class, some of another type."""
    return _object(kind.__name__, get_type_hints(kind, include_extras=True) | changed, kind.__doc__)


def _report() -> dict:
    groups = list[_like(report.EngineGroup)]
    return {
        "plan": Plan,
        "cache": report.CacheReport,
        "memory": Memory,
        "engine": _like(report.EngineReport, groups=groups),
        "capacity": report.CapacityReport,
        "batching": report.BatchingReport,
        "throughput": report.ThroughputReport,
        "fleet": Fleet,
        "paging": report.PagingReport,
        "breakdown": list[GroupCost],
        "remarks": list[str],
        "notes": list[str],
        "sources": dict[str, Source],
        "resolved": dict[str, Scalar] | None,
    }


def _plan() -> dict:
    return get_type_hints(Plan, include_extras=True)


def _sweep() -> dict:
    fields, paths = Literal[*Plan.model_fields], Literal[*every_column()]
    return {"plan": Plan, "axes": dict[fields, list[Scalar]], "columns": dict[paths, list[Scalar]]}


def _simulate() -> dict:
    hints, percentiles = get_type_hints(Simulation), dict.fromkeys(pool.PERCENTILES, float | None)
    kept = {name: hints[name] for name in pool.KEPT}
    times = dict.fromkeys(pool.TIMES, _object("Percentiles", percentiles))
    run = _object("Run", kept | times | {"notes": list[str]})
    return {"plan": Plan, "requests": int, "reserve": run, "on_demand": run}


def _levers() -> dict:
    lever = {name: hint for name, hint in get_type_hints(levers.Lever).items() if name not in ("changed", "plan")}
    one = _object("Lever", lever | {"changes": dict[str, Scalar]})
    return {"plan": Plan, "before": levers.Effect, "levers": list[one]}


def _fleet() -> dict:
    real, trials = float | None, list[fleet_search.Trial]
    split = dict.fromkeys(("tp", "pp", "dp", "batch"), int)
    point = _object("Point", split | {"rate": float, "ttft_s": real, "tpot_s": real, "meets": bool, "fleet": Fleet})
    search = {
        "saturated_rate": float,
        "running": float,
        "trials": trials,
        "verified": trials,
        "alone": fleet_search.Trial | None,
        "simulations": int,
    }
    return {
        "plan": Plan,
        "targets": _object("Targets", {"ttft_s": float, "tpot_s": float, "percentile": float}),
        "rate": _object("Rate", {"mean": float, "peak_to_mean": float, "peak": float}),
        "price": _object("Price", {"gpu_hour_usd": float, "price_date": str | None}),
        "fleet": Fleet,
        "closed_form": point | None,
        "search": _object("Search", search),
        "frontier": list[point],
    }


def _log() -> dict:
    rows, reasons = list[_like(log_comparison.Row)], list[log_comparison.Reason]
    return {
        "log": EngineLog,
        "plan": Plan,
        "calibrated": Plan,
        "rows": rows,
        "reasons": reasons,
        "missing": list[str],
    }


def _check() -> dict:
    return {name: hint for name, hint in get_type_hints(check.CheckResult).items() if name not in ("schema", "version")}


def _answer(kind: type) -> tuple[str, Callable[[], dict]]:
    """An answer's schema and its own keys."""
    return answers.SCHEMAS[kind], lambda: get_type_hints(kind)


def _presets() -> dict:
    return {kind: list[spec] for kind, spec in catalog.SPECS.items()}


COMMANDS: dict[str, tuple[str, Callable[[], dict]]] = {
    "report": (report.SCHEMA, _report),
    "plan": (plan_json.SCHEMA, _plan),
    "check": (check.SCHEMA, _check),
    "sweep": (sweep_files.SCHEMA, _sweep),
    "ceiling": _answer(answers.CeilingAnswer),
    "batching": _answer(answers.BatchingAnswer),
    "paging": _answer(answers.PagingAnswer),
    "throughput": _answer(answers.ThroughputAnswer),
    "simulate": (pool.SCHEMA, _simulate),
    "levers": (levers.SCHEMA, _levers),
    "fleet": (fleet_search.SCHEMA, _fleet),
    "log": (log_comparison.SCHEMA, _log),
    "presets": (catalog.SCHEMA, _presets),
}
"""Each command that prints JSON: the name of its schema, and the keys beside `schema` and `version`."""
