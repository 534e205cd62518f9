"""What can be expected of a plan, as data: the name of a limit, the figure it holds, its unit, and what that counts.

`min_` and `max_` are the direction; a name without either asks for a value itself. A figure that a plan does not have
raises ValueError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, create_model

from kvplan.ceiling import LIMITS
from kvplan.fleet import replica_gpus
from kvplan.fleet_search import Trial, at_peak
from kvplan.frontier import has_rate
from kvplan.plan import Flag, Fraction, Number, Tokens
from kvplan.report import Report, evaluate
from kvplan.specs import Frozen, ModelSpec, nearest, problems, shorten
from kvplan.units import GIB, target

Limit = int | float | bool | str
"""A limit as it is given, and a figure as it is found."""
Whole = Annotated[int, Field(ge=0, le=2**53), Number]
Amount = Annotated[float, Field(ge=0), Number]
ANY_TIME_S = 3600.0
"""The longest a latency target may be: what is not asked for is not missed."""


@dataclass(frozen=True)
class Facts:
    """What the figures are read from: the report of a plan, and what takes more than a report, found when first asked
    for. `limits` are those the plan is held to, `model` one's own."""

    report: Report
    limits: Mapping[str, Limit] = field(default_factory=dict)
    model: ModelSpec | None = None

    @cached_property
    def longest_context(self) -> int:
        """The longest context at which one request starts, everything else as it is, up to what the model was trained
        for, or to the plan's own where that is longer; 0 where it starts at none.

        A longer context never starts where a shorter one does not, as it books more and leaves no larger pool.
        """
        plan, trained = self.report.plan, self.report.setting.model.max_position_embeddings
        low, high = (plan.context, trained) if self.report.engine.fits else (0, plan.context)
        while low < high:
            middle = (low + high + 1) // 2
            starts = evaluate(plan.model_copy(update={"context": middle}), self.model).engine.fits
            low, high = (middle, high) if starts else (low, middle - 1)
        return low

    @cached_property
    def trial(self) -> Trial:
        """One of the plan's `dp` replicas in the simulator, at the peak of its arrival rate split at random over them;
        each run is judged by the limits as `fleet` judges by the plan's targets."""
        limits = (self.limits.get(name, ANY_TIME_S) for name in ("max_ttft_p95_s", "max_tpot_p95_s"))
        plan = self.report.plan
        asked = plan.model_copy(update=dict(zip(("ttft_s", "tpot_s"), limits, strict=True)))
        return at_peak(asked, plan.dp, self.model)


class Expectation(NamedTuple):
    """The type of a limit, the unit and meaning of the figure it is held against, and how that is read."""

    limit: Any
    unit: str
    what: str
    value: Callable[[Facts], Limit]


def _of(path: str) -> Callable[[Facts], Limit]:
    """A figure of the report by its path."""
    return attrgetter(f"report.{path}")


def _sequences(name: str) -> Callable[[Facts], int]:
    """A ceiling by memory, which is 0 where not even one request starts."""
    return lambda facts: getattr(facts.report.capacity, name) if facts.report.engine.fits else 0


def _rate(name: str) -> Callable[[Facts], float]:
    """A figure of a replica in its steady state."""

    def value(facts: Facts) -> float:
        if not facts.report.throughput.batch:
            raise ValueError("no step time is known, as the device has no rates or the model no weights")
        return getattr(facts.report.throughput, name)

    return value


def _fleet(name: str) -> Callable[[Facts], float]:
    """A figure of the fleet that the closed form finds for the plan's rate and targets."""

    def value(facts: Facts) -> float:
        found = getattr(facts.report.fleet, name)
        if found is None:
            raise ValueError(_no_fleet(facts))
        return found

    return value


def _no_fleet(facts: Facts) -> str:
    if not has_rate(facts.report):
        return "no arrival_rate"
    setting = facts.report.setting
    _rate("tokens_per_s")(facts)
    return f"not even one request at a time meets ttft_s {target(setting.ttft_s)} and tpot_s {target(setting.tpot_s)}"


def _gpus(facts: Facts) -> int:
    """The devices of the fleet where requests come, else of the replicas that the plan has."""
    if has_rate(facts.report):
        return _fleet("gpus")(facts)
    return facts.report.plan.dp * replica_gpus(facts.report.setting)


def _priced(value: Callable[[Facts], float]) -> Callable[[Facts], float]:
    """A figure in dollars, which only a plan with a price has: the unit that others count in is no offer."""

    def priced(facts: Facts) -> float:
        if facts.report.plan.gpu_hour_usd is None:
            raise ValueError("no gpu_hour_usd")
        return value(facts)

    return priced


def _usd_per_hour(facts: Facts) -> float:
    return _gpus(facts) * facts.report.setting.gpu_hour_usd


def _simulated(name: str) -> Callable[[Facts], float]:
    """The worst 95th percentile of the runs at the peak."""

    def value(facts: Facts) -> float:
        if not has_rate(facts.report):
            raise ValueError("no arrival_rate")
        trial = facts.trial
        if "rate" in trial.missed:
            raise ValueError(f"{trial.rate:,.2f} requests/s come to a replica at the peak, more than one completes")
        times = getattr(trial, name)
        if None in times:
            raise ValueError("no output has a second token" if name == "tpot_s" else "no request was served")
        return max(times)

    return value


EXPECTATIONS = {
    "fits": Expectation(
        Flag,
        "",
        "one request of the context starts, and the device has what the plan takes",
        lambda facts: fits(facts.report),
    ),
    "binding": Expectation(Literal[LIMITS], "", "the limit that holds the batch ceiling", _of("capacity.binding")),
    "min_batch_ceiling": Expectation(
        Whole,
        "sequences",
        "sequences that run at once, by reservation and within every limit",
        _of("capacity.batch_ceiling"),
    ),
    "min_memory_ceiling": Expectation(
        Whole, "sequences", "sequences by reservation, by memory alone", _sequences("memory_ceiling")
    ),
    "min_on_demand_ceiling": Expectation(
        Whole, "sequences", "sequences on average on demand, by memory alone", _sequences("on_demand_ceiling")
    ),
    "min_max_concurrency": Expectation(
        Amount,
        "requests",
        "requests of the whole context, as the engine prints its maximum concurrency",
        _of("engine.max_concurrency"),
    ),
    "min_kv_cache_tokens": Expectation(
        Whole, "tokens", "tokens of cache, as the engine prints them", _of("engine.kv_cache_tokens")
    ),
    "min_num_blocks": Expectation(
        Whole, "blocks", "blocks of the pool, as the engine prints them", _of("engine.num_blocks")
    ),
    "min_pool_gib": Expectation(
        Amount, "GiB", "KV pool of one device", lambda facts: facts.report.memory.pool_bytes / GIB
    ),
    "min_context": Expectation(
        Tokens,
        "tokens",
        "longest context at which one request starts, up to the model's trained length",
        attrgetter("longest_context"),
    ),
    "max_waste_fraction": Expectation(
        Fraction,
        "of booked slots",
        "slots of its blocks that a request has not filled at completion",
        _of("paging.waste_share"),
    ),
    "max_gpus": Expectation(
        Whole,
        "GPUs",
        "devices of the closed form's fleet, spare replicas among them; without an arrival rate dp × tp × pp",
        _gpus,
    ),
    "max_replicas": Expectation(
        Whole,
        "replicas",
        "replicas that meet both targets at the peak, by the closed form and without spare ones",
        _fleet("replicas"),
    ),
    "min_tokens_per_s": Expectation(
        Amount, "tokens/s", "output tokens a second of one replica at the plan's batch", _rate("tokens_per_s")
    ),
    "min_requests_per_s": Expectation(
        Amount, "requests/s", "requests a second of one replica at the plan's batch", _rate("requests_per_s")
    ),
    "max_usd_per_hour": Expectation(
        Amount, "USD/h", "the GPUs of max_gpus at the plan's gpu_hour_usd", _priced(_usd_per_hour)
    ),
    "max_usd_per_million_tokens": Expectation(
        Amount,
        "USD",
        "a million output tokens of the mean rate on the closed form's fleet",
        _priced(_fleet("usd_per_million_tokens")),
    ),
    "max_ttft_s": Expectation(
        Amount, "s", "mean time to the first token at the plan's batch, without a queue", _rate("ttft_s")
    ),
    "max_tpot_s": Expectation(Amount, "s", "mean time between tokens at the plan's batch", _rate("tpot_s")),
    "max_ttft_p95_s": Expectation(
        Amount,
        "s",
        "simulated 95th percentile of the time to the first token at one of the dp replicas, at the peak",
        _simulated("ttft_s"),
    ),
    "max_tpot_p95_s": Expectation(
        Amount,
        "s",
        "simulated 95th percentile of the time between tokens at one of the dp replicas, at the peak",
        _simulated("tpot_s"),
    ),
    "min_gain": Expectation(
        Amount, "times", "tokens of continuous over static batches in the same steps", _of("batching.gain")
    ),
}

Name = Literal[*EXPECTATIONS]
Limits = create_model("Limits", __base__=Frozen, **{name: (each.limit, None) for name, each in EXPECTATIONS.items()})
"""The limits a plan may be held to; one that is not given is no limit."""


def limits_from(expect: Mapping) -> tuple[dict[str, Limit], dict[str, str]]:
    """The limits of a mapping, and what was wrong: name -> rule and value.

    >>> limits_from({"min_batch_ceiling": "64", "max_gpu": 8})
    ({'min_batch_ceiling': 64}, {'max_gpu': 'is no expectation; nearest: max_gpus'})
    """
    wrong = {str(name): _unknown(str(name)) for name in expect if name not in EXPECTATIONS}
    values = {name: value for name, value in expect.items() if name in EXPECTATIONS}
    try:
        Limits.model_validate(values)
    except ValidationError as error:
        wrong |= problems(error)
    found = Limits.model_validate({name: value for name, value in values.items() if name not in wrong})
    return {name: getattr(found, name) for name in values if name not in wrong}, wrong


def fits(report: Report) -> bool:
    """Whether one request starts and the device has what a plan takes, a pool given in bytes among it."""
    return report.engine.fits and report.memory.left_free_bytes >= 0


def _unknown(name: str) -> str:
    return f"is no expectation{nearest(shorten(name), EXPECTATIONS)}"
