"""A plan held to limits, as `kvplan check` does it in CI."""

from pathlib import Path

from kvplan.check import check
from kvplan.plan_files import read_plan_file

PLAN = Path(__file__).parents[1] / "docs/plans/evening-chat.toml"

found = read_plan_file(PLAN)
print(f"{found.name}: {found.plan.model} on {found.plan.tp} GPUs")
for verdict in check(found.plan, {"min_batch_ceiling": 24, "max_gpus": 8}):
    print(f"{'ok' if verdict.passed else 'missed':6} {verdict.name}, margin {verdict.margin:+g}")
