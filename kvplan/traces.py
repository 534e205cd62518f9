"""A file of requests -> Trace: public traces, results of benchmarks, and any CSV or JSON lines with token counts.

The format is told from what the file holds, not from its name. A row that cannot be used is skipped and counted by its
reason; a file is read in one pass, and a row costs some 25 bytes.

Source: Azure Public Dataset, LLM inference traces 2023 and 2024; Mooncake, FAST25-release/traces; BurstGPT; the result
file of vLLM, `vllm bench serve --save-detailed`; ShareGPT.
"""

from __future__ import annotations

import csv
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from kvplan.lengths import to_table
from kvplan.plan import DEFAULTS, FROM_TRACE, MAX_PEAK, MAX_RATE, Plan
from kvplan.specs import parsed_json, read_json, shorten, shown
from kvplan.texts import table_text
from kvplan.trace_formats import (
    EXAMPLES,
    MAX_COLUMNS,
    MAX_LINE,
    MAX_LINES,
    PER_SECOND,
    Bytes,
    Clock,
    Refused,
    Unusable,
    lines_of,
    plain_name,
    require_roles,
    roles_of,
    text_of,
    token_count,
    unit_in_name,
)

MAX_DOCUMENT_MB = 64
MAX_DOCUMENT = MAX_DOCUMENT_MB * 10**6
"""Characters of a JSON document, which is held as a whole."""
MOST_CARRIED = {"arrival_rate": MAX_RATE, "arrival_cv": MAX_RATE, "peak_to_mean": MAX_PEAK, "prefix_hit_rate": 1.0}
"""Beyond these a plan takes no figure of a trace."""
MINUTE_S, MOST_MINUTES = 60, 10**7
"""What a peak is counted over, and how many a trace may span."""
MAX_HASHES = 2 * 10**6
"""Prefix blocks that are kept; beyond, lengths and times are read without them."""
AHEAD = 20
"""Rows whose keys are looked at before the first is read, as not every row has every key."""
ROWS_A_CALL = 20_000
CHARACTERS_A_TOKEN = 4
"""A usual figure for English text, for files that hold texts instead of token counts."""
DELIMITERS = ",;\t|"
ROLES = ("prompt", "output", "arrival")

AZURE, BURSTGPT, CSV = "Azure LLM inference", "BurstGPT", "CSV"
MOONCAKE, VLLM, SHAREGPT, JSON, JSON_LINES = "Mooncake", "vLLM benchmark", "ShareGPT", "JSON", "JSON lines"
SIGNATURES = {
    AZURE: {"timestamp", "contexttokens", "generatedtokens"},
    BURSTGPT: {"timestamp", "requesttokens", "responsetokens", "logtype"},
}
"""The columns by which a CSV file is known."""
MOONCAKE_KEYS = {"timestamp", "input_length", "output_length"}
VLLM_KEYS = {"input_lens", "output_lens"}
SHOWN_EXAMPLES = 3
LINK_EVEN_BINS, LINK_TAIL_BINS, LINK_SLICES = 12, 12, 10
"""A table short enough for a link."""

Progress = Callable[[int, int], bool | None]


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests as observed.

    `prompts` and `outputs`: tokens, int64 arrays of shape (n,), in order of arrival. `arrivals_s`: float64, (n,),
    seconds from the first request, ascending, None where the file has no times. `hashes`: the prefix blocks of each
    request, of 512 tokens, in a Mooncake trace, else None. `columns`: "prompt", "output", "arrival" -> the column or
    key taken. `rows` is what was read, `prompts.size` and all that was `skipped`, by its reason. `examples` are the
    first skipped: the line (in a JSON document the number of the request), and the reason with the value.
    """

    name: str
    format: str
    prompts: np.ndarray
    outputs: np.ndarray
    arrivals_s: np.ndarray | None
    hashes: tuple[tuple[int, ...], ...] | None
    columns: dict[str, str]
    rows: int
    skipped: dict[str, int]
    examples: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]

    @property
    def arrival_rate(self) -> float | None:
        """Requests a second, (n - 1) / span; None without times or without a span."""
        span = 0.0 if self.arrivals_s is None else float(self.arrivals_s[-1])
        return _finite((self.prompts.size - 1) / span) if span > 0 else None

    @property
    def arrival_cv(self) -> float | None:
        """Standard deviation of the gaps between requests over their mean; None for less than two gaps or no span."""
        if self.arrival_rate is None or self.prompts.size < 3:
            return None
        gaps = np.diff(self.arrivals_s)
        return _finite(float(gaps.std(ddof=1) / gaps.mean()))

    @property
    def peak_to_mean(self) -> float | None:
        """Requests of the busiest whole minute over the mean one; None without times or without two whole minutes."""
        minutes = 0 if self.arrivals_s is None else int(self.arrivals_s[-1] // MINUTE_S)
        if not 2 <= minutes <= MOST_MINUTES:
            return None
        counts = np.bincount((self.arrivals_s // MINUTE_S).astype(np.int64))[:minutes]
        return float(counts.max() / counts.mean()) if counts.any() else None

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of all prefix blocks that an earlier request had, as a pool that forgets nothing would find them; None
        without hashes."""
        blocks = sum(map(len, self.hashes or ()))
        return 1 - len({block for request in self.hashes for block in request}) / blocks if blocks else None


def read_trace(
    source: bytes | str | Path | BinaryIO,
    name: str = "",
    columns: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    most_rows: int = MAX_LINES,
) -> Trace:
    """The requests of a file: its bytes, its path, or a binary stream, read from where it stands and left open.

    `columns` names the column or key of "prompt", "output" or "arrival" where the guess is wrong; "" for an arrival
    reads no times. `progress(done_bytes, total_bytes)` is called every 20,000 rows and at the end, with a total of 0
    where it is not known; when it returns False, reading stops. `most_rows`: a file with more is refused.

    Raises ValueError, one line with the file, the rule and the value: no usable request, a column that is not there,
    columns that cannot be guessed, no text, JSON that is damaged or too large, or reading was stopped.
    """
    name = shorten(name or _name_of(source), 120)
    try:
        with _opened(source) as stream:
            return _read(stream, name, _checked(columns), progress, most_rows)
    except Refused as error:
        raise ValueError(f"{shorten(name)}: {error}") from None
    except (EOFError, zlib.error):
        raise ValueError(f"{shorten(name)}: must be whole, the compressed data are damaged or cut short") from None
    except OSError as error:
        raise ValueError(f"{shorten(name)}: cannot be read, {shorten(error.strerror or str(error))}") from None


def remarks(trace: Trace) -> list[str]:
    """How a file was read, in lines: the columns taken, its traffic, notes, and what was skipped and where."""
    taken = ", ".join(f"{role} from {shorten(column, 60)}" for role, column in trace.columns.items())
    without = "no times" if trace.arrivals_s is None else "no rate, all requests came at once"
    rate = without if trace.arrival_rate is None else f"{trace.arrival_rate:,.4g} requests/s"
    cv = "" if trace.arrival_cv is None else f", gaps vary by {trace.arrival_cv:.3g} times their mean"
    skipped = [f"{rows:,} rows skipped: {reason}" for reason, rows in trace.skipped.items()]
    where = [f"line {number:,}: {reason}" for number, reason in trace.examples[:SHOWN_EXAMPLES]]
    return [*([taken] if taken else []), rate + cv, *trace.notes, *skipped, *where]


def plan_fields(trace: Trace) -> dict[str, str | float]:
    """What a plan carries of a trace: its lengths in one word, the requests a second with the variation of their gaps
    and their peak, and how much of the prompts is found in a pool that forgets nothing.

    The word takes about a thousand characters. Held against the raw requests of four public traces, the utilisation of
    static batches up to 256 is within 1.2%, and what a running request holds within 7%. A rate beyond what a plan may
    have (times in a unit that was not told) is left out.
    """
    rows = to_table(trace.outputs, trace.prompts, LINK_EVEN_BINS, LINK_TAIL_BINS, LINK_SLICES)
    rates = {
        name: float(f"{rate:.6g}")
        for name in FROM_TRACE
        if name != "table" and (rate := getattr(trace, name)) is not None and rate <= MOST_CARRIED[name]
    }
    return {"table": table_text(rows)} | rates


def with_trace(plan: Plan, trace: Trace) -> Plan:
    """The plan with the lengths and the traffic of a trace in place of its own."""
    return plan.model_copy(update={"workload": DEFAULTS.workload} | dict.fromkeys(FROM_TRACE) | plan_fields(trace))


class Requests:
    """What is read of a file, row by row, and what was skipped."""

    def __init__(self, columns: Mapping[str, str], tick: Callable[[], None], notes: list[str], most_rows: int):
        self.given, self.tick, self.notes, self.most_rows = columns, tick, notes, most_rows
        self.format, self.roles, self.clock = "", {}, Clock()
        self.prompts, self.outputs, self.rows = array("q"), array("q"), 0
        self.hashes: list[tuple[int, ...]] | None = None
        self.hashed = self.without_hashes = 0
        self.skipped, self.examples = Counter(), []

    def take(self, names: Iterable[str], form: str) -> None:
        """The columns to read, out of those there are."""
        names = list(names)
        if len(names) > MAX_COLUMNS:
            raise Refused(f"at most {MAX_COLUMNS:,} columns are told apart, it has {len(names):,}")
        self.roles = roles_of(names, self.given)
        require_roles(names, self.roles, self.given)
        self.format = form
        guessed = [role for role in ROLES if role in self.roles and role not in self.given]
        if guessed and form in (CSV, JSON, JSON_LINES):
            found = ", ".join(f"{role} from {shorten(self.roles[role], 40)}" for role in guessed)
            self.notes.append(f"columns: guessed, {found}")

    def add(self, line: int, prompt, output, time=None, hashes=None) -> None:
        """One row, used or skipped."""
        self._count()
        role = "prompt"
        try:
            tokens = token_count(prompt, 0)
            role = "output"
            answer = token_count(output, 1)
        except Unusable as reason:
            value = prompt if role == "prompt" else output
            self._note_skipped(line, f"{role} {reason}", "" if value in (None, "") else f", got {shown(value)}")
            return
        self.prompts.append(tokens)
        self.outputs.append(answer)
        if "arrival" in self.roles:
            self.clock.add(line, time)
        if self.hashes is not None:
            self._add_hashes(hashes)

    def skip(self, line: int, reason: str, detail: str = "") -> None:
        """One row that is none."""
        self._count()
        self._note_skipped(line, reason, detail)

    def _count(self) -> None:
        self.rows += 1
        if self.rows > self.most_rows:
            raise Refused(f"at most {self.most_rows:,} rows are read, it has more")
        if self.rows % ROWS_A_CALL == 0:
            self.tick()

    def _note_skipped(self, line: int, reason: str, detail: str) -> None:
        self.skipped[reason] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((line, reason + detail))

    def _add_hashes(self, found) -> None:
        blocks = isinstance(found, list) and all(type(block) is int for block in found)
        self.hashes.append(tuple(found) if blocks else ())
        self.without_hashes += not blocks
        self.hashed += len(self.hashes[-1])
        if self.hashed > MAX_HASHES:
            self.hashes = None
            self.notes.append(f"hash_ids: left out, more than {MAX_HASHES:,} prefix blocks")


def _read(stream: BinaryIO, name: str, columns: Mapping[str, str], progress: Progress | None, most_rows: int) -> Trace:
    total, counted = _size(stream), Bytes(stream)

    def tick():
        if progress is not None and progress(counted.taken, total) is False:
            raise Refused("stopped")

    text, encoding = text_of(counted)
    notes = [f"text: neither UTF-8 nor UTF-16, read as {encoding}"] if encoding else []
    requests = Requests(columns, tick, notes, most_rows)
    number, first = _first_line(text)
    if first.startswith("["):
        _read_document(_document(first, text), requests)
    elif first.startswith("{"):
        _read_object(number, first, text, requests)
    else:
        _read_csv(number, first, text, requests)
    tick()
    return _trace(name, requests)


def _first_line(text: TextIO) -> tuple[int, str]:
    """The first line that is not blank, and its number."""
    for number in range(1, MAX_LINES):
        line = text.readline(MAX_LINE)
        if not line:
            break
        if line.strip():
            # A whole JSON document may stand on one line.
            long = len(line) == MAX_LINE and line[-1] != "\n" and line.lstrip()[0] in "[{"
            rest = text.readline(MAX_DOCUMENT + 1 - len(line)) if long else ""
            return number, (line + rest).lstrip()
    raise Refused("must hold requests, it is empty")


# CSV


def _read_csv(number: int, header: str, text: TextIO, requests: Requests) -> None:
    names, delimiter = _header(header, requests.given)
    plain = {plain_name(name) for name in names}
    requests.take(names, next((form for form, signature in SIGNATURES.items() if signature <= plain), CSV))
    requests.clock = Clock(decimal_comma=delimiter != ",")
    prompt, output, time = (names.index(requests.roles[role]) if role in requests.roles else None for role in ROLES)
    for line, row in _csv_rows(lines_of(text, number + 1), delimiter, number, requests):
        try:
            requests.add(line, row[prompt], row[output], None if time is None else row[time])
        except IndexError:
            cells = [row[index] if index is not None and index < len(row) else None for index in (prompt, output, time)]
            requests.add(line, *cells)


def _header(line: str, given: Mapping[str, str]) -> tuple[list[str], str]:
    """The names in a header, and the sign between them: the one that gives most columns that are known."""
    found = []
    if (signs := max(map(line.count, DELIMITERS))) > MAX_COLUMNS:
        raise Refused(f"at most {MAX_COLUMNS:,} columns are told apart, its header has {signs + 1:,}")
    for delimiter in DELIMITERS:
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
        except csv.Error:
            raise Refused(f"must begin with a header, got {shown(line[:80])}") from None
        found.append((len(roles_of(names, given)), len(names), names, delimiter))
    return max(found, key=lambda item: item[:2])[2:]


def _csv_rows(lines: Iterator[str], delimiter: str, before: int, requests: Requests) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file with the lines they end on, blank ones left out; what is no row is skipped."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            requests.skip(before + reader.line_num, "no CSV", f", {shorten(str(error))}")
            continue
        if any(row):
            yield before + reader.line_num, row


# JSON


def _read_object(number: int, first: str, text: TextIO, requests: Requests) -> None:
    """A file that begins with a JSON object: on one line for each request, or as one document."""
    found = parsed_json(first)
    if isinstance(found, dict) and found.keys() >= VLLM_KEYS:
        if next((line for line in lines_of(text, number + 1) if line.strip()), None):
            requests.notes.append("results: only the first of several in the file is read")
        _read_document(found, requests)
        return
    lines = lines_of(text, number + 1)
    second = next(lines, "")
    if found is None and not second.startswith("{"):
        _read_document(_document(first + second, text), requests)
        return
    numbered = enumerate(chain([first, second], lines), start=number)
    _read_records(((line, parsed_json(words)) for line, words in numbered if words.strip()), JSON_LINES, requests)


def _document(first: str, text: TextIO):
    """A JSON document out of its beginning and the rest."""
    whole = first + text.read(max(1, MAX_DOCUMENT + 1 - len(first)))
    if len(whole) > MAX_DOCUMENT:
        raise Refused(f"a JSON document may have {MAX_DOCUMENT_MB} MB; write one line of JSON for each request instead")
    try:
        return read_json(whole)
    except ValueError as error:
        raise Refused(f"must be JSON, {error}") from None


def _read_document(found, requests: Requests) -> None:
    if isinstance(found, dict) and found.keys() >= VLLM_KEYS:
        _read_columns({key: value for key, value in found.items() if isinstance(value, list)}, requests)
    elif isinstance(found, (dict, list)):
        records = found if isinstance(found, list) else [found]
        _read_records(enumerate(records, start=1), JSON, requests)
    else:
        raise Refused(f"must hold requests, got {shown(found)}")


def _read_columns(lists: dict[str, list], requests: Requests) -> None:
    """The result of a benchmark: one list for each figure, one entry for each request."""
    requests.take(lists, VLLM)
    values = [lists[requests.roles[role]] if role in requests.roles else [] for role in ROLES]
    for number, row in enumerate(zip_longest(*values), start=1):
        requests.add(number, *row)


def _read_records(records: Iterator[tuple[int, object]], form: str, requests: Requests) -> None:
    """Requests as objects, by their token counts, or by their texts where they are conversations."""
    records = iter(records)
    ahead = list(islice(records, AHEAD))
    objects = [record for _, record in ahead if isinstance(record, dict)]
    if not objects:
        raise Refused(f"must hold requests as JSON objects, got {shown(ahead[0][1]) if ahead else 'none'}")
    names = list(dict.fromkeys(name for record in objects for name in _names(record)))
    with_counts = requests.given or roles_of(names, {}).keys() >= {"prompt", "output"}
    if not with_counts and "conversations" in names:
        _read_conversations(chain(ahead, records), requests)
    elif not with_counts and "total_input_tokens" in names:
        raise Refused("must hold the length of each request; vLLM writes them with --save-detailed")
    else:
        requests.take(names, MOONCAKE if set(names) >= MOONCAKE_KEYS else form)
        requests.hashes = [] if requests.format == MOONCAKE and "hash_ids" in names else None
        _read_counts(chain(ahead, records), requests)


def _read_counts(records: Iterable[tuple[int, object]], requests: Requests) -> None:
    prompt, output, time = (requests.roles.get(role) for role in ROLES)
    for line, record in records:
        if isinstance(record, dict):
            cells = _value(record, prompt), _value(record, output), _value(record, time)
            requests.add(line, *cells, record.get("hash_ids"))
        else:
            requests.skip(line, "no JSON object", "" if record is None else f", got {shown(record)}")


def _names(record: dict) -> Iterator[str]:
    """The keys of an object, and those of objects in it as `outer.inner`."""
    for key, value in record.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in value)


def _value(record: dict, name: str | None):
    if name is None or name in record or "." not in name:
        return record.get(name)
    for outer, nested in record.items():
        if isinstance(nested, dict) and name.startswith(f"{outer}."):
            return nested.get(name[len(outer) + 1 :])
    return None


def _read_conversations(records: Iterable[tuple[int, object]], requests: Requests) -> None:
    """Every answer as a request of its own, with all that was said before it as its prompt; tokens by characters."""
    requests.format = SHAREGPT
    requests.notes.append(
        f"tokens: an estimate, {CHARACTERS_A_TOKEN} characters each, as the file holds texts and no token counts"
    )
    for number, record in records:
        turns = record.get("conversations") if isinstance(record, dict) else None
        answers = list(_answers(turns)) if isinstance(turns, list) else []
        for prompt, output in answers:
            requests.add(number, prompt, output)
        if not answers:
            requests.skip(number, "no question and answer")


def _answers(turns: list) -> Iterator[tuple[int, int]]:
    """(prompt, output) of every answer to a question, in estimated tokens."""
    context, asked = 0, False
    for turn in turns:
        text = turn.get("value") if isinstance(turn, dict) else None
        characters = len(text) if isinstance(text, str) else 0
        speaker = turn.get("from") if isinstance(turn, dict) else None
        if asked and speaker in ("gpt", "chatgpt", "assistant"):
            yield -(-context // CHARACTERS_A_TOKEN), -(-characters // CHARACTERS_A_TOKEN)
        asked = speaker in ("human", "user")
        context += characters


# What was read, put together


def _trace(name: str, requests: Requests) -> Trace:
    prompts, outputs = (np.array(found, dtype=np.int64) for found in (requests.prompts, requests.outputs))
    hashes = requests.hashes if prompts.size > requests.without_hashes else None
    if hashes is not None and requests.without_hashes:
        requests.notes.append(f"hash_ids: {requests.without_hashes:,} requests without a list of whole numbers")
    if requests.format == BURSTGPT and requests.skipped["output below 1"]:
        requests.notes.append("output: rows with 0 response tokens are failed requests, skipped")
    arrivals, kept = _arrivals(requests)
    if kept is not None:
        prompts, outputs = prompts[kept], outputs[kept]
        hashes = hashes and [hashes[index] for index in kept]
    if not prompts.size:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in requests.skipped.most_common(5))
        raise Refused(f"must hold a usable request, got {requests.rows:,} rows{f': {reasons}' if reasons else ''}")
    return Trace(
        name=name,
        format=requests.format,
        prompts=prompts,
        outputs=outputs,
        arrivals_s=arrivals,
        hashes=None if hashes is None else tuple(hashes),
        columns=requests.roles,
        rows=requests.rows,
        skipped=dict(requests.skipped),
        examples=tuple(sorted(requests.examples)[:EXAMPLES]),
        notes=tuple(requests.notes),
    )


def _arrivals(requests: Requests) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Seconds from the first request, ascending, and the requests they belong to by their place in the file.

    None and None where no time can be read; a request without a time is skipped where others have one.
    """
    clock = requests.clock
    if "arrival" not in requests.roles or not clock.kinds:
        return None, None
    if not clock.kind():
        requests.notes.append(f"arrival: no time in {shorten(requests.roles.pop('arrival'), 40)} can be read, left out")
        return None, None
    known = "milliseconds" if requests.format == MOONCAKE else unit_in_name(requests.roles["arrival"])
    unit = clock.unit(known)
    if unit:
        requests.notes.append(f"arrival: numbers in {shorten(requests.roles['arrival'], 40)} taken as {unit}")
    kept = np.flatnonzero(clock.readable())
    if unreadable := len(clock.kinds) - kept.size:
        requests.skipped["unreadable time"] = unreadable
        examples = clock.unreadable_examples()
        requests.examples += [(line, f"unreadable time, got {value}") for line, value in examples]
    times = clock.seconds()[kept]
    if (np.diff(times) < 0).any():
        order = np.argsort(times, kind="stable")
        times, kept = times[order], kept[order]
        requests.notes.append("arrival: times were not in order, sorted")
    if shared := int((np.diff(times) == 0).sum()):
        requests.notes.append(f"arrival: {shared:,} requests came at the time of the one before, kept")
    return (times - times[0]) / PER_SECOND[unit or "seconds"], kept


def _opened(source: bytes | str | Path | BinaryIO):
    """A stream of a source, closed at the end where it was opened here."""
    if isinstance(source, (bytes, bytearray)):
        return BytesIO(source)
    if not isinstance(source, (str, os.PathLike)):
        return nullcontext(source)
    try:
        return Path(source).open("rb")
    except ValueError as error:
        raise Refused(f"cannot be read, {error}") from None


def _size(stream: BinaryIO) -> int:
    """Bytes from where a stream stands, 0 where it does not say."""
    try:
        here = stream.tell()
        end = stream.seek(0, os.SEEK_END)
        stream.seek(here)
    except (AttributeError, OSError):
        return 0
    return end - here


def _name_of(source) -> str:
    given = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    return Path(given).name if isinstance(given, (str, os.PathLike)) else "trace"


def _checked(columns: Mapping[str, str] | None) -> dict[str, str]:
    """The columns as given, known by their roles."""
    for role, name in (columns or {}).items():
        if role not in ROLES:
            raise Refused(f"columns: must be of {', '.join(ROLES)}, got {shown(role)}")
        if not isinstance(name, str) or (not name and role != "arrival"):
            raise Refused(f"columns: {role} must be the name of a column, got {shown(name)}")
    return dict(columns or {})


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
