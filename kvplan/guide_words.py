"""The Guide in words: a plan in five steps, each with one number and its arithmetic, and why the answers are so."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan import breakdown, verdict
from kvplan.guide import LONG, QUESTIONS, SHORT, Answers, Kind, how_far
from kvplan.ledger import Line, pool_ledger
from kvplan.metrics import Metric
from kvplan.report import CapacityReport, Report
from kvplan.token_terms import token_terms
from kvplan.units import GIB, binary, capitalised, count, gib, gib_or_less, mean, percent, percent_exact, short_tokens

NEXT = {
    "ceiling": "how the ceiling falls with the context, and what fp8 or more devices would change",
    "pool": "the blocks step by step, and who is preempted when the pool runs out",
    "throughput": "tokens a second and latency, and which target binds",
    "levers": "one change at a time, and what each does to the ceiling and the cost",
    "fleet": "replicas, GPUs and money for your own rate and targets",
    "help": "how near these numbers come to what engines print",
}
"""Where to go from here: a page and what it shows."""
FOURFOLD = 3.95
"""From which ratio on a booking counts as four times another."""


@dataclass(frozen=True)
class Step:
    """One step: its title, what it says, its number, and the arithmetic that gives it, line by line."""

    title: str
    sentence: str
    number: str
    arithmetic: tuple[str, ...]


def opening(report: Report) -> str:
    """What is walked through, and how long that takes."""
    return f"{report.setting.model.name} on {verdict.devices(report)}, in five minutes"


def plan_step(report: Report) -> Step:
    """What is planned, and how much memory there is."""
    plan, each = report.plan, gib(report.memory.total_bytes, 2)
    devices = plan.tp * plan.pp
    return Step(
        "The plan",
        f"{report.setting.model.name} on {verdict.devices(report)}, requests of up to {count(plan.context)} tokens, "
        f"with the lengths of {verdict.workload_name(report)}.",
        f"{gib(devices * report.memory.total_bytes)} of memory",
        (f"tp {plan.tp} × pp {plan.pp} × {each} = {gib(devices * report.memory.total_bytes, 2)}",),
    )


def token_step(report: Report) -> Step:
    """What a token adds for good, factor by factor; what windows and states add is said beside."""
    cache, terms = report.cache, token_terms(report.setting)
    beside = breakdown.cost_sentence(breakdown.RequestCost(cache.request_bytes_fixed, cache.booked_bytes_per_token))
    if not terms:
        size = report.engine.bytes_per_block
        number = cache.request_bytes_booked // size
        sentence = "No layer of this model grows for good: a window or a state is all that it keeps of a request"
        arithmetic = f"{_blocks(number)} × {count(size)} B = {count(number * size)} B a request"
        return Step("What a token costs", f"{sentence}. {beside}", "0 B a token", (arithmetic,))
    sentence = "Layers that attend to all tokens keep what they made of each until its request ends."
    if cache.request_bytes_fixed or cache.booked_bytes_per_token > cache.bytes_per_token:
        sentence += f" Windows, states or padding come on top. {beside}"
    if report.plan.dcp > 1:
        sentence += f" With dcp each of {report.plan.dcp} ranks keeps only its share of the tokens."
    return Step(
        "What a token costs",
        sentence,
        f"{binary(cache.bytes_per_token)} a token",
        (f"{' + '.join(term.factors for term in terms)} = {cache.bytes_per_token:,} B on each device",),
    )


def pool_step(report: Report) -> Step:
    """What one device has left for the cache, line by line."""
    lines = pool_ledger(report)
    if len(lines) == 1:
        arithmetic = f"{count(lines[0].size_bytes)} B / 2^30 = {gib(lines[0].size_bytes, 2)}"
        sentence = "The pool of each device is given in bytes, so nothing is derived."
    else:
        taken = " ".join(_taken(line) for line in lines[1:-1] if line.size_bytes)
        arithmetic = f"{gib(lines[0].size_bytes, 2)} {taken} = {gib(report.memory.pool_bytes, 2)}"
        sentence = "Weights and what start-up takes come off each device first; the pool is what is left."
    return Step("What is left for the pool", sentence, f"{gib(report.memory.pool_bytes)} a device", (arithmetic,))


def fit_step(report: Report) -> Step:
    """How many requests fit: by reservation and on demand, booked and held."""
    capacity, cache, size = report.capacity, report.cache, report.engine.bytes_per_block
    share = percent(capacity.held_share)
    shared, booked = cache.request_bytes_shared // size, cache.request_bytes_booked // size
    free, own = report.engine.num_blocks - shared, booked - shared
    blocks = _blocks(report.engine.num_blocks)
    once = f", of which {_blocks(shared)} hold the prefix, once for all" if shared else ""
    return Step(
        "How many requests fit",
        f"Reserving, a request of {_context(report)} books {gib_or_less(cache.request_bytes_booked)} at its admission "
        f"and holds {share} of it on average; on demand it books what it holds, {count(capacity.on_demand_running)} "
        "run, and somebody is preempted when the pool runs out.",
        _requests(capacity.batch_ceiling),
        (
            f"{count(report.memory.pool_bytes)} B / {count(size)} B a block = {blocks}{once}",
            f"reserve: {count(free)} blocks / {count(own)} a request = "
            f"{_whole(capacity, capacity.memory_quotient, capacity.batch_ceiling)}",
            f"on demand: {count(free)} blocks / {free / capacity.on_demand_quotient:,.2f} a running request = "
            f"{_whole(capacity, capacity.on_demand_quotient, capacity.on_demand_running)}",
        ),
    )


def batch_step(report: Report) -> Step:
    """How well the batch is used: static against continuous."""
    found, lengths = report.batching, report.setting.lengths
    longest = float(lengths.expected_max(found.batch))
    return Step(
        "How well the batch is used",
        f"{verdict.plain(verdict.batching(report).sentence)}. A static batch waits for its longest answer; continuous "
        "batching refills a slot in the next step.",
        f"{percent_exact(found.static_utilisation)} busy",
        (
            f"mean answer {lengths.mean:,.2f} / longest of a batch {longest:,.2f} tokens = "
            f"{100 * found.static_utilisation:.4g}%",
            f"100% / {100 * found.static_utilisation:.4g}% = {found.gain:.2f}×",
        ),
    )


def steps(report: Report) -> tuple[Step, ...]:
    """The five steps of a plan that runs."""
    return tuple(step(report) for step in (plan_step, token_step, pool_step, fit_step, batch_step))


def metrics(found: Answers) -> list[Metric]:
    """The four answers, in the order of the questions."""
    batching = found.own.batching
    return [
        _fits(found.short, SHORT),
        _fits(found.long, LONG),
        Metric(
            "Static batch",
            percent_exact(batching.static_utilisation),
            f"busy at batch {count(batching.batch)}",
            "Share of slot-steps that make a token: mean tokens of an answer / mean tokens of the longest in a batch.",
        ),
        Metric(
            "Continuous",
            f"{batching.gain:.2f}×",
            "the tokens of static",
            "Times the tokens in as many steps: 1 / the static share, as every slot works while requests wait.",
        ),
    ]


def _fits(report: Report, context: int) -> Metric:
    return Metric(
        f"Fit at {short_tokens(context)}",
        count(report.capacity.batch_ceiling),
        "not served" if report.engine.refused else verdict.BINDING[report.capacity.binding],
        f"Requests that run at once, each booking {count(context)} tokens: min(blocks // blocks a request, "
        "max_num_seqs, quota).",
    )


def comparisons(found: Answers, guesses: dict[str, float]) -> list[str]:
    """For each question, the guess and how far off it is; empty where there was none."""
    numbers = found.numbers
    return [
        f"Your guess {_guess(question.kind, guesses[question.name])}: "
        f"{how_far(guesses[question.name], numbers[question.name])}"
        if question.name in guesses
        else ""
        for question in QUESTIONS
    ]


def reasons(found: Answers) -> list[str]:
    """Why each of the four answers is what it is, a sentence each."""
    batching, lengths = found.own.batching, found.own.setting.lengths
    longest = float(lengths.expected_max(batching.batch))
    return [
        _why_fits(found.short),
        f"{_why_fits(found.long)}. {_why_less(found)}",
        f"The batch runs until its longest answer is done: of {count(batching.batch)}, {mean(longest)} tokens on "
        f"average, where the mean answer has {mean(lengths.mean)}",
        f"Every slot works while requests wait: 100% against {percent_exact(batching.static_utilisation)}",
    ]


def _context(report: Report) -> str:
    return f"{count(report.plan.context)} tokens"


def _taken(line: Line) -> str:
    """A line of the ledger as a term of the subtraction."""
    name = line.part if line.part.startswith("CUDA") else line.part[0].lower() + line.part[1:]
    return f"{'−' if line.size_bytes < 0 else '+'} {abs(line.size_bytes) / GIB:,.2f} {name}"


def _blocks(number: int) -> str:
    return f"{count(number)} block{'' if number == 1 else 's'}"


def _requests(number: int) -> str:
    return f"{count(number)} request{'' if number == 1 else 's'}"


def _whole(capacity: CapacityReport, quotient: float, running: int) -> str:
    """A quotient, and what whole requests and the limits beside memory make of it."""
    if running == int(quotient):
        return f"{quotient:,.2f}, so {count(running)} whole"
    limit = "max_num_seqs" if running == capacity.max_num_seqs else "the quota"
    return f"{quotient:,.2f}; {limit} allows {count(running)}"


def _guess(kind: Kind, number: float) -> str:
    """A guess as it was meant."""
    return {"requests": f"{number:,.0f}", "percent": f"{number:g}%", "times": f"{number:g}×"}[kind]


def _why_fits(report: Report) -> str:
    """The division behind a ceiling, or the limit that binds before memory."""
    capacity = report.capacity
    if not capacity.batch_ceiling:
        return verdict.plain(verdict.ceiling(report).sentence)
    booked = gib_or_less(report.cache.request_bytes_booked)
    divided = f"each books {booked} of a pool of {gib(report.memory.pool_bytes)}"
    if capacity.binding == "memory":
        return capitalised(divided)
    limit = {"max_num_seqs": "max_num_seqs", "tenant_quota": "the quota"}[capacity.binding]
    return f"Memory would hold {count(capacity.memory_ceiling)}, as {divided}; {limit} stops before"


def _why_less(found: Answers) -> str:
    """What four times the tokens do to the booking."""
    long = found.long.cache
    ratio = long.request_bytes_booked / found.short.cache.request_bytes_booked
    if ratio >= FOURFOLD:
        return "Four times the tokens book four times the memory"
    if ratio <= 1:
        return "Four times the tokens book no more, as a state has one size"
    return (
        f"Four times the tokens book {ratio:.2g} times the memory, as {gib_or_less(long.request_bytes_fixed)} of it do "
        "not grow with them"
    )
