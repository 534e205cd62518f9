"""Layers, models and workload tables as one word of a link: readable where that is possible, packed where not."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable

from pydantic import ValidationError

from kvplan.specs import LayerGroup, ModelSpec, Source, problem_lines, runs, shorten

MAX_TEXT, MAX_INFLATED, MAX_LAYERS = 4_096, 65_536, 4_096
RUN = re.compile(r"(full|sliding|chunked)(\d+)?:(\d+)x(\d+)x(\d+)(?:/(\d+))?")
REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)")
UNSOURCED = ("notes", "sources")
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
    flat = REPEATED.sub(lambda match: ",".join([match[1]] * min(int(match[2][:6]), MAX_LAYERS)), text)
    found, layers = [], 0
    for word in flat.split(","):
        group = _run(word.strip())
        layers += group.layers
        if layers > MAX_LAYERS:
            raise ValueError(f"groups: at most {MAX_LAYERS:,} layers")
        found.append(group)
    return runs(found)


def spec_text(model: ModelSpec) -> str:
    """A whole model, packed: compact JSON without its sources, zlib, base64url."""
    return _packed(model.model_dump(mode="json", exclude_defaults=True, exclude=set(UNSOURCED)))


def spec_from_text(text: str) -> ModelSpec:
    """The model a packed text holds. Raises ValueError in one line."""
    data = _unpacked("spec", text)
    if not isinstance(data, dict):
        raise ValueError("spec: must hold a model")
    names = ("parameters", "weight_bytes", "max_position_embeddings", "groups", "num_attention_heads")
    try:
        return ModelSpec.model_validate(data | {"sources": dict.fromkeys(names, LINK_SOURCE)})
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
        if not whole or row[0] < 1 or row[1] < 1 or row[2] < 0 or max(row) > 2**31:
            raise ValueError(f"table: a row is requests, output and prompt as whole numbers, got {shorten(repr(row))}")
    return tuple((requests, float(output), float(prompt)) for requests, output, prompt in data)


def _run_text(group: LayerGroup) -> str:
    value = f"/{group.value_head_dim}" if group.value_head_dim != group.head_dim else ""
    return f"{group.kind}{group.window or ''}:{group.layers}x{group.kv_heads}x{group.head_dim}{value}"


def _run(word: str) -> LayerGroup:
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
        if len(inflated) > MAX_INFLATED:
            raise ValueError(f"{field}: inflates to more than {MAX_INFLATED:,} bytes")
        return json.loads(inflated)
    except (binascii.Error, zlib.error, UnicodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{field}: must be packed as kvplan packs it, got {shorten(repr(text))}") from None
