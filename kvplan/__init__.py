"""kvplan: how many sequences fit, how well the batch is used, how much of the cache is wasted.

>>> from kvplan import Plan, evaluate
>>> report = evaluate(Plan(model="llama-3.1-70b", gpu="h100-sxm", tp=4, context=32768))
>>> report.cache.bytes_per_token, report.engine.bytes_per_block, report.capacity.binding
(81920, 1310720, 'memory')
"""

from kvplan.catalog import load_preset, presets
from kvplan.hf_config import model_from_hf_config
from kvplan.links import decode_link, encode_link
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.sweep import Sweep, sweep
from kvplan.version import VERSION

__version__ = VERSION
__all__ = [
    "EngineLog",
    "Plan",
    "Report",
    "Sweep",
    "decode_link",
    "encode_link",
    "evaluate",
    "load_preset",
    "model_from_hf_config",
    "parse_engine_log",
    "presets",
    "sweep",
]


def __getattr__(name: str):
    """What reads logs is loaded when it is asked for, so that everything else starts sooner."""
    if name in ("EngineLog", "parse_engine_log"):
        from kvplan import engine_log

        return getattr(engine_log, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
