"""From a rate of requests to replicas, devices and money, by the closed form: no queue, mean requests.

`fleet_search` starts here and checks by simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvplan.catalog import Setting
from kvplan.throughput import Engine, operate

HOUR_S = 3600


@dataclass(frozen=True)
class Fleet:
    """`replicas` serve the peak, `spare_replicas` stand by for one that fails; both are among the `gpus`.

    `usd_per_million_tokens` is over the output tokens of the mean rate, at which most of the fleet idles.
    """

    replicas: int | None = None
    spare_replicas: int | None = None
    gpus: int | None = None
    usd_per_hour: float | None = None
    usd_per_million_tokens: float | None = None


NO_FLEET = Fleet()


def fleet(setting: Setting, runs: Engine, batch: int) -> Fleet:
    """The fleet for the plan's rate and its peak, with `batch` requests in each replica at the peak."""
    each = operate(runs, batch).requests_per_s
    return priced(setting, math.ceil(peak_rate(setting) / each), runs.demand.output)


def peak_rate(setting: Setting) -> float:
    """Requests a second of the busiest minute."""
    return setting.arrival_rate * setting.peak_to_mean


def priced(setting: Setting, replicas: int, mean_output: float) -> Fleet:
    """So many replicas and the plan's spare ones, with what they cost."""
    spare = setting.plan.spare_replicas
    gpus = (replicas + spare) * replica_gpus(setting)
    usd_per_hour = gpus * setting.gpu_hour_usd
    per_million = usd_per_million_tokens(usd_per_hour, setting.arrival_rate * mean_output)
    return Fleet(replicas, spare, gpus, usd_per_hour, per_million)


def replica_gpus(setting: Setting) -> int:
    """Devices of one replica."""
    return setting.plan.tp * setting.plan.pp


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float) -> float | None:
    """What a million output tokens cost at a rate; None where there are none.

    >>> usd_per_million_tokens(usd_per_hour=9.0, tokens_per_s=2500)
    1.0
    """
    return usd_per_hour / (tokens_per_s * HOUR_S) * 1e6 if tokens_per_s else None
