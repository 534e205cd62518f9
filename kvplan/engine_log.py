"""An engine's start-up log -> the figures it states: vLLM of all versions, SGLang, TensorRT-LLM, llama.cpp, lmdeploy.

The spellings are in `log_patterns`. A log may hold several starts (the last one counts, failed or not), several ranks
(the one with the smallest pool sets the limit), and anything in between.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace

from kvplan.log_patterns import DRAFT, FAILURES, HEADS, LOAD, PATTERNS, POOL, READY, SIGNATURES, Pattern
from kvplan.log_text import LogLine, is_cut, log_lines


@dataclass(frozen=True)
class RankFigures:
    """What one rank printed of itself, in GiB; None where it did not."""

    rank: str
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    cuda_graph_gib: float | None = None
    available_kv_gib: float | None = None


RANK_FIELDS = tuple(part.name for part in fields(RankFigures) if part.name != "rank")


@dataclass(frozen=True)
class EngineLog:
    """What the last start in a text states; None for what it does not.

    GiB are binary, whatever the engine calls them. `cuda_graph_gib` is what graphs took, `cuda_graph_estimate_gib` what
    was expected. With several ranks the figures are those of the one that sets the limit; the others are in `ranks`.
    `max_model_len` is the length in force after the engine cut it. `starts` is how many starts the text holds, `error`
    why the last one failed, `lines` where each figure stands: field -> (line number, line). `cut`: the text was longer
    than what is read, so its beginning was left out.
    """

    engine: str | None = None
    version: str | None = None
    model: str | None = None
    tp: int | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    cuda_graph_gib: float | None = None
    available_kv_gib: float | None = None
    kv_cache_tokens: int | None = None
    num_blocks: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    needed_gib: float | None = None
    suggested_context: int | None = None
    k_gib: float | None = None
    v_gib: float | None = None
    ranks: tuple[RankFigures, ...] = ()
    pp: int | None = None
    dp: int | None = None
    total_gib: float | None = None
    free_gib: float | None = None
    gpu_memory_utilization: float | None = None
    mem_fraction_static: float | None = None
    cuda_graph_estimate_gib: float | None = None
    consumed_gib: float | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool | None = None
    enable_prefix_caching: bool | None = None
    kv_cache_memory_bytes: int | None = None
    error: str | None = None
    starts: int = 0
    cut: bool = False
    lines: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def pool_gib(self) -> float | None:
        """The pool of the device: as stated, or what SGLang allocates for keys and values together."""
        if self.available_kv_gib is None and self.engine == "sglang" and self.k_gib is not None:
            return self.k_gib + (self.v_gib or 0.0)
        return self.available_kv_gib


TEXTS = frozenset({"version", "model", "kv_cache_dtype", "quantization"})
FLAGS = frozenset({"enforce_eager", "enable_prefix_caching"})
COUNTS = frozenset({
    "tp", "pp", "dp", "kv_cache_tokens", "num_blocks", "max_model_len", "suggested_context", "block_size",
    "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes",
})  # fmt: skip
"""Fields that are no sizes or shares: words, switches and whole numbers."""
SMALLEST = frozenset({"kv_cache_tokens", "max_concurrency", "num_blocks"})
"""Fields of which the smallest counts where each rank of vLLM prints its own."""

PROCESS = re.compile(
    r"\((?P<name>(?:Worker|VllmWorker|RayWorker|EngineCore|ApiServer|APIServer)\w*)(?P<rest>[^)]{0,80})\)|"
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<sglang>(?: (?:DP|PP|TP|EP)\d+)+)\]"
)
INDEX = re.compile(r"(?:DP|PP|TP|EP)\d+")
PID = re.compile(r"pid=(\d+)")
RANK_NUMBER = re.compile(r"rank=(\d+)")
DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class _Process:
    """Who printed a line: `rank` as shown, and `role`, the same without what changes from one start to the next."""

    rank: str
    role: str


def parse_engine_log(text: str) -> EngineLog:
    """The figures of the last start in a text. Never raises: a text without any gives an empty log.

    >>> log = parse_engine_log("INFO 08-14 [kv_cache_utils.py:1] GPU KV cache size: 272,784 tokens")
    >>> log.engine, log.kv_cache_tokens, log.lines["kv_cache_tokens"][0]
    ('vllm', 272784, 1)
    """
    starts = _starts(log_lines(text))
    return replace(_read(starts[-1]), starts=len(starts), cut=is_cut(text)) if starts else EngineLog(cut=is_cut(text))


def _starts(lines: Iterable[LogLine]) -> list[list[LogLine]]:
    """The lines of each start. One begins where an engine introduces itself again, or loads weights after its pool."""
    starts: list[list[LogLine]] = []
    seen: set[tuple[str, str]] = set()
    for line in lines:
        role, stages = _process(line.text).role, set(_stages(line.text))
        if _begins(stages, role, seen):
            starts.append([])
            seen = set()
        if not starts:
            starts.append([])
        starts[-1].append(line)
        seen |= {(stage, role) for stage in stages}
    return [start for start in starts if any(_engines(line.text) for line in start)]


def _begins(stages: set[str], role: str, seen: set[tuple[str, str]]) -> bool:
    """Whether a line of these stages begins a new start, after what was seen of the one before: (stage, role)."""
    past = {stage for stage, _ in seen}
    ended = bool(past & {"pool", "failed"})
    if "load" in stages:
        return "draft" not in past and (("pool", role) in seen or (not role and "pool" in past))
    head = next((name for name in HEADS if name in stages), None)
    if head is None:
        return False
    if head == "build":
        return ended
    again = (head, role) in seen
    if not again and any(stage == head and _are_siblings(role, other) for stage, other in seen):
        return False
    return ended or again or (head == "api" and bool(past - {"api"}))


def _are_siblings(role: str, other: str) -> bool:
    """Whether two processes differ in nothing but their number: engines of one start that run side by side."""
    return role != other and DIGITS.sub("", role) == DIGITS.sub("", other)


def _stages(text: str) -> Iterator[str]:
    """What a line shows of how far a start is."""
    for name, pattern in HEADS.items():
        if pattern.search(text):
            yield name
    if LOAD.search(text):
        yield "load"
    if DRAFT.search(text):
        yield "draft"
    if POOL.search(text):
        yield "pool"
    if any(pattern.search(text) for pattern in FAILURES):
        yield "failed"


def _process(text: str) -> _Process:
    """Who printed a line, from the prefix that engines put before what several processes write to one stream."""
    match = PROCESS.search(text[:400])
    if not match:
        return _Process("", "")
    if match["sglang"]:
        return _Process(match["sglang"].strip(), match["sglang"].strip())
    name, rest = match["name"], match["rest"]
    indices = INDEX.findall(name)
    if name.startswith(("EngineCore", "ApiServer", "APIServer")):
        return _Process(" ".join(indices), name)
    if number := RANK_NUMBER.search(rest):
        return _Process(f"rank {number[1]}", f"{name} {number[1]}")
    if indices:
        return _Process(" ".join(indices), name)
    pid = PID.search(rest)
    return _Process(f"{name} pid {pid[1]}" if pid else name, name)


def _engines(text: str) -> list[str]:
    return [engine for engine, pattern in SIGNATURES.items() if pattern.search(text)]


@dataclass(frozen=True)
class _Found:
    """A figure as it was met. `batch` counts the rounds in which an engine sized its cache; all but the last were dry
    runs."""

    name: str
    value: float | int | str | bool
    line: LogLine
    pattern: Pattern
    rank: str
    batch: int


def _read(lines: list[LogLine]) -> EngineLog:
    """The figures of one start."""
    counted = Counter(engine for line in lines for engine in _engines(line.text))
    engine = counted.most_common(1)[0][0]
    by_name: dict[str, list[_Found]] = {}
    for found in _met(lines, engine):
        by_name.setdefault(found.name, []).append(found)
    chosen = {name: _decisive(found) for name, found in by_name.items()}
    ranks = _by_rank([found for name in RANK_FIELDS for found in by_name.get(name, [])])
    limit = _limiting(ranks)
    chosen |= ranks.get(limit, {})
    return EngineLog(
        engine=engine,
        ranks=tuple(_figures(rank, ranks[rank]) for rank in sorted(ranks, key=_rank_order) if rank != limit),
        error=_failure(lines),
        lines={name: (found.line.number, found.line.text.strip()) for name, found in chosen.items()},
        **{name: found.value for name, found in chosen.items()},
    )


def _met(lines: Iterable[LogLine], engine: str) -> Iterator[_Found]:
    """Every figure of the engine's spellings, line by line."""
    patterns = [pattern for pattern in PATTERNS if pattern.engine == engine]
    batch, sized = 0, False
    pooled: set[str] = set()
    for line in lines:
        rank = _process(line.text).rank
        for pattern in patterns:
            match = pattern.expression.search(line.text) if pattern.literal in line.text else None
            if not match:
                continue
            if "available_kv_gib" in pattern.fields and not pattern.weak:
                if sized and rank in pooled:
                    batch, sized, pooled = batch + 1, False, set()
                pooled.add(rank)
            sized = sized or "kv_cache_tokens" in pattern.fields
            for name, text in zip(pattern.fields, match.groups(), strict=True):
                value = _value(name, text, pattern.scale)
                if value is not None:
                    yield _Found(name, value, line, pattern, rank, batch)


def _value(name: str, text: str, scale: float) -> float | int | str | bool | None:
    """A figure out of its digits; None where they are no number after all."""
    if name in TEXTS:
        return text
    if name in FLAGS:
        return text == "True"
    digits = text.replace(",", "")
    try:
        return int(digits) if name in COUNTS else float(digits) / scale
    except ValueError:
        return None


def _decisive(found: list[_Found]) -> _Found:
    """Of all that was met of one figure, what counts: the last (or the first), and in a round where each rank printed
    its own cache the smallest."""
    strong = [each for each in found if not each.pattern.weak] or found
    if strong[0].pattern.first:
        return strong[0]
    if found[0].name in SMALLEST and strong[0].pattern.engine == "vllm":
        return min((each for each in strong if each.batch == strong[-1].batch), key=lambda each: each.value)
    return strong[-1]


def _by_rank(found: list[_Found]) -> dict[str, dict[str, _Found]]:
    """What counts of each rank: rank -> field -> figure."""
    ranks: dict[str, dict[str, list[_Found]]] = {}
    for each in found:
        ranks.setdefault(each.rank, {}).setdefault(each.name, []).append(each)
    return {rank: {name: _decisive(own) for name, own in names.items()} for rank, names in ranks.items()}


def _limiting(ranks: dict[str, dict[str, _Found]]) -> str | None:
    """The rank with the smallest pool, else the first that printed anything."""
    with_pool = [rank for rank in ranks if "available_kv_gib" in ranks[rank]]
    if with_pool:
        return min(with_pool, key=lambda rank: ranks[rank]["available_kv_gib"].value)
    return next(iter(ranks), None)


def _rank_order(rank: str) -> tuple[list[int], str]:
    """TP2 before TP10."""
    return [int(number) for number in DIGITS.findall(rank)], rank


def _figures(rank: str, found: dict[str, _Found]) -> RankFigures:
    return RankFigures(rank or "unnamed", **{name: each.value for name, each in found.items()})


def _failure(lines: list[LogLine]) -> str | None:
    """Why the start failed, in the engine's own words; None where it says nothing of a failure, or began to serve."""
    if any(READY.search(line.text) for line in lines):
        return None
    for pattern in FAILURES:
        for line in reversed(lines):
            if match := pattern.search(line.text):
                return match[0].strip()
    return None
