"""A start-up log beside what is predicted for the same start, and the plan it makes."""

from pathlib import Path

from kvplan import encode_link, parse_engine_log
from kvplan.log_comparison import compare, figure_text

LOG = Path(__file__).parents[1] / "docs/samples/vllm.log"

log = parse_engine_log(LOG.read_text())
print(f"{log.engine} {log.version}, tp {log.tp}: {log.available_kv_gib} GiB, {log.kv_cache_tokens:,} tokens")

found = compare(log)
for row in found.rows:
    print(f"{row.figure:16} measured {figure_text(row.measured)}, predicted {figure_text(row.predicted)} {row.unit}")
print(encode_link(found.calibrated, full=False))
