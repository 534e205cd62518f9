"""Layers, models and workload tables as one word of a link: readable where that is possible, packed where not."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from kvplan.specs import SOURCED, LayerGroup, ModelSpec, Source, problem_lines, read_json, runs, shorten

MAX_REQUESTS = 2**24
"""Requests of one row, as a workload may have them."""
MAX_TEXT, MAX_INFLATED, MAX_LAYERS = 4_096, 65_536, 4_096
RUN = re.compile(r"(full|sliding|chunked)([0-9]+)?:([0-9]+)x([0-9]+)x([0-9]+)(?:/([0-9]+))?")
PART = re.compile(r"\(([^()]*)\)\*([0-9]{1,6})|([^(),]+)")
"""A pattern in brackets with its repeats, or a single run."""
LINK_SOURCE = Source(text="carried by the link, without its sources")


def groups_text(groups: Iterable[LayerGroup]) -> str | None:
    """Plain, sliding and chunked layers as text, None where there are others.

    `kind[window]:layers x kv_heads x head_dim[/value_dim]`, runs in order, a repeated pattern in brackets.

    >>> groups_text(groups_from_text("(sliding1024:5x8x128,full:1x8x128)*10"))
    '(sliding1024:5x8x128,full:1x8x128)*10'
    """
    found = list(groups)
    if any(group.kind not in ("full", "sliding", "chunked") or group.index_dim for group in found):
        return None
    words = [_run_text(group) for group in found]
    for length in range(1, len(words) // 2 + 1):
        if len(words) % length == 0 and words == words[:length] * (len(words) // length):
            return f"({','.join(words[:length])})*{len(words) // length}"
    return ",".join(words)


def groups_from_text(text: str) -> tuple[LayerGroup, ...]:
    """The layers a text names. Raises ValueError with the part that cannot be read."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"groups: at most {MAX_TEXT:,} characters, got {len(text):,}")
    found, layers = [], 0
    for words, times in _parts(text):
        pattern = [_run(word) for word in words.split(",")]
        layers += times * sum(group.layers for group in pattern)
        if layers > MAX_LAYERS:
            raise ValueError(f"groups: at most {MAX_LAYERS:,} layers")
        found += pattern * times
    return runs(found)


def spec_text(model: ModelSpec) -> str:
    """A whole model, packed: compact JSON without its sources, zlib, base64url."""
    return _packed(model.model_dump(mode="json", exclude_defaults=True, exclude={"sources"}))


def spec_from_text(text: str) -> ModelSpec:
    """The model a packed text holds. Raises ValueError in one line."""
    data = _unpacked("spec", text)
    if not isinstance(data, dict):
        raise ValueError("spec: must hold a model")
    try:
        return ModelSpec.model_validate(data | {"sources": dict.fromkeys(SOURCED, LINK_SOURCE)})
    except ValidationError as error:
        raise ValueError(f"spec: {problem_lines(error)[0]}") from None


def table_text(rows: Iterable[tuple[float, float, float]]) -> str:
    """A workload's rows (requests, output, prompt), packed as whole numbers."""
    return _packed([[round(value) for value in row] for row in rows])


def table_from_text(text: str) -> tuple[tuple[int, float, float], ...]:
    """The rows a packed text holds: requests, output and prompt. Raises ValueError in one line."""
    data = _unpacked("table", text)
    if not isinstance(data, list) or not 1 <= len(data) <= 2_000:
        raise ValueError("table: must hold between 1 and 2,000 rows")
    for row in data:
        whole = isinstance(row, list) and len(row) == 3 and all(type(value) is int for value in row)
        if not whole or row[0] < 1 or row[1] < 1 or row[2] < 0 or max(row) > 2**31 or row[0] > MAX_REQUESTS:
            raise ValueError(
                f"table: a row is requests (up to {MAX_REQUESTS:,}), output and prompt as whole numbers, got "
                f"{shorten(repr(row))}"
            )
    return tuple((requests, float(output), float(prompt)) for requests, output, prompt in data)


def _run_text(group: LayerGroup) -> str:
    value = f"/{group.value_head_dim}" if group.value_head_dim != group.head_dim else ""
    return f"{group.kind}{group.window or ''}:{group.layers}x{group.kv_heads}x{group.head_dim}{value}"


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Patterns and how often each is repeated, in order; what stands between must be one comma."""
    position = 0
    while True:
        match = PART.match(text, position)
        if not match or (match[2] is not None and int(match[2]) < 1):
            raise ValueError(f"groups: must be runs and (pattern)*n with commas between, got {shorten(repr(text))}")
        yield (match[3], 1) if match[3] else (match[1], int(match[2]))
        position = match.end() + 1
        if match.end() == len(text):
            return
        if text[match.end()] != ",":
            raise ValueError(f"groups: must be runs and (pattern)*n with commas between, got {shorten(repr(text))}")


def _run(word: str) -> LayerGroup:
    word = word.strip()
    match = RUN.fullmatch(word)
    if not match:
        raise ValueError(f"groups: must be kind[window]:layers x kv_heads x head_dim, got {shorten(repr(word))}")
    kind, window, layers, heads, width, value = match.groups()
    try:
        return LayerGroup(
            kind=kind,
            layers=layers,
            kv_heads=heads,
            head_dim=width,
            value_head_dim=value or width,
            window=window,
        )
    except ValidationError as error:
        raise ValueError(f"groups: {problem_lines(error)[0]}") from None


def _packed(data) -> str:
    squeezed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(squeezed).decode().rstrip("=")


def _unpacked(field: str, text: str):
    """JSON out of a packed text, limited in size before and after inflating."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"{field}: at most {MAX_TEXT:,} characters, got {len(text):,}")
    try:
        squeezed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        inflated = zlib.decompressobj().decompress(squeezed, MAX_INFLATED + 1)
        data = read_json(inflated) if len(inflated) <= MAX_INFLATED else None
    except (ValueError, zlib.error):
        raise ValueError(f"{field}: must be packed as kvplan packs it, got {shorten(repr(text))}") from None
    if len(inflated) > MAX_INFLATED:
        raise ValueError(f"{field}: inflates to more than {MAX_INFLATED:,} bytes")
    return data
