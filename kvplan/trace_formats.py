"""What a file of requests says, piece by piece: its text, its columns, token counts and times, as files in the wild
write them.

Nothing is put together here. What cannot be read is said with a reason; `Refused` stands for a file as a whole.
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import BinaryIO, TextIO

import numpy as np

from kvplan.specs import shorten, shown

MAX_TOKENS = 10**8
"""Tokens of one prompt or output; a larger number is a damaged row."""
MAX_LINES = 20_000_000
"""Lines that are read: the longest public trace (Azure 2024, code) has 16.8 million."""
MAX_LINE = 2**24
"""Characters of a line, so that a small compressed file cannot fill the memory."""
MAX_COLUMNS = 10_000
"""Columns of a table, or keys of its first objects, that are told apart."""
MAX_TEXT_GB = 2
MAX_TEXT = MAX_TEXT_GB * 10**9
"""Bytes of text that are read, unpacked: a file of 64 MB can unpack to a thousand times that."""
MAX_TIME = 1e19
"""A larger number is no time in any unit."""
EXAMPLES = 20
HEAD = 65_536
BINARY = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a ZIP archive or a spreadsheet", b"\x28\xb5\x2f\xfd": "Zstandard"}
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

SYNONYMS = {
    "prompt": (
        "prompttokens", "inputtokens", "contexttokens", "numprompttokens", "numinputtokens", "nprompttokens",
        "requesttokens", "prefilltokens", "numprefilltokens", "promptlength", "inputlength", "contextlength",
        "promptlen", "inputlen", "inputlens", "prompttokencount", "inputtokencount", "promptevalcount", "prompt",
        "input",
    ),
    "output": (
        "outputtokens", "completiontokens", "generatedtokens", "responsetokens", "numoutputtokens",
        "numcompletiontokens", "numgeneratedtokens", "generationtokens", "numgenerationtokens", "decodetokens",
        "numdecodetokens", "outputlength", "completionlength", "responselength", "outputlen", "outputlens",
        "outputtokencount", "candidatestokencount", "evalcount", "output", "completion",
    ),
    "arrival": (
        "arrival", "arrivals", "arrivaltime", "arrivedat", "timestamp", "requesttimestamp", "requesttime", "starttime",
        "starttimes", "createdat", "created", "datetime", "date", "time", "ts",
    ),
}  # fmt: skip
"""Names of a column without case and signs, the most telling first."""
UNITS = {
    "s": "seconds", "sec": "seconds", "secs": "seconds", "seconds": "seconds",
    "ms": "milliseconds", "msec": "milliseconds", "millis": "milliseconds", "milliseconds": "milliseconds",
    "us": "microseconds", "µs": "microseconds", "microseconds": "microseconds",
    "ns": "nanoseconds", "nanoseconds": "nanoseconds",
}  # fmt: skip
"""How the name of a column ends that says its unit."""
PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
EPOCHS = ((1e17, "nanoseconds"), (1e14, "microseconds"), (1e11, "milliseconds"))
"""From which number on a time can only be one since 1970 in this unit; in seconds, 10^11 is the year 5138."""

GROUPED = re.compile(r"[+-]?\d{1,3}(?:([,' _\u2019\u00a0\u202f])\d{3})(?:\1\d{3})*(?:\.0*)?")
"""A whole number with a sign between its thousands."""
MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?\s?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
"""ISO 8601: date and time, up to nine digits of a second, and a zone or none."""
NUMBER, DATED = 1, 2


class Refused(ValueError):
    """A whole file, or the names given for its columns, cannot be read; the rule and the value in one line."""


class Unusable(ValueError):
    """A value cannot be used; the reason."""


class Bytes(io.RawIOBase):
    """Bytes of a stream behind a head that was already read; `taken` counts what was passed on.

    The stream itself stays open when this one is closed: it belongs to whoever gave it.
    """

    def __init__(self, stream: BinaryIO, head: bytes = b""):
        self.stream, self.head, self.taken = stream, head, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        found = self.head[: len(buffer)] or self.stream.read(len(buffer)) or b""
        self.head = self.head[len(buffer) :]
        buffer[: len(found)] = found
        self.taken += len(found)
        if self.taken > MAX_TEXT:
            raise Refused(f"at most {MAX_TEXT_GB} GB of text are read, it has more")
        return len(found)


def text_of(stream: Bytes) -> tuple[TextIO, str | None]:
    """The text of a stream, unpacked where it begins as gzip does, and its encoding where that had to be guessed.

    UTF-8, or UTF-16 with its mark; bytes that are neither are Latin-1, in which only names can be wrong. Raises Refused
    for what is no text.
    """
    head, plain = _split_head(stream)
    if head[:2] == b"\x1f\x8b":
        head, plain = _split_head(gzip.GzipFile(fileobj=plain))
    for magic, kind in BINARY.items():
        if head.startswith(magic):
            raise Refused(f"must be CSV, JSON or JSON lines, got {kind}")
    encoding = _encoding(head)
    if "\0" in head.decode(encoding, errors="replace"):
        raise Refused(f"must be CSV, JSON or JSON lines, got no text, {shown(head[:12])}")
    return io.TextIOWrapper(plain, encoding, errors="replace"), "Latin-1" if encoding == "latin-1" else None


def _split_head(stream) -> tuple[bytes, io.BufferedReader]:
    """The first bytes of a stream, and a stream of all of them."""
    buffered = io.BufferedReader(stream)
    head = buffered.read(HEAD)
    return head, io.BufferedReader(Bytes(buffered, head), HEAD)


def _encoding(head: bytes) -> str:
    for mark, encoding in BOMS.items():
        if head.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def lines_of(text: TextIO, first: int) -> Iterator[str]:
    """The lines of a text, of which the next has the number `first`. Raises Refused for more or longer lines than any
    trace has."""
    for number in range(first, MAX_LINES + 2):
        line = text.readline(MAX_LINE)
        if not line:
            return
        if len(line) == MAX_LINE and line[-1] != "\n":
            raise Refused(f"a line may have {MAX_LINE:,} characters, line {number:,} has more")
        yield line
    raise Refused(f"at most {MAX_LINES:,} lines are read, it has more")


def plain_name(name: str) -> str:
    """A name as columns are compared: no case, no signs, no unit.

    >>> plain_name("Request tokens"), plain_name("ContextTokens"), plain_name("arrival_time (ms)")
    ('requesttokens', 'contexttokens', 'arrivaltime')
    """
    words = _words(name)
    return "".join(words[:-1] if len(words) > 1 and words[-1] in UNITS else words)


def unit_in_name(name: str) -> str | None:
    """The unit of time with which a name ends."""
    return UNITS.get((_words(name) or [""])[-1])


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", spaced.lower())


def roles_of(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Which of the names is the prompt, the output and the arrival: as given, else by their synonyms, else left out.

    A given name of "" leaves its role out. A dotted name is also known by its last part (`usage.prompt_tokens`).
    """
    names = list(names)
    spelled, plain = {}, {}
    for name in names:
        spelled.setdefault(name.strip().lower(), name)
        plain.setdefault(plain_name(name), name)
    for name in names:
        plain.setdefault(plain_name(name.rsplit(".", 1)[-1]), name)
    found = {}
    for role, synonyms in SYNONYMS.items():
        if role in given:
            name = given[role] if given[role] in names else spelled.get(given[role].strip().lower())
        else:
            name = next((plain[synonym] for synonym in synonyms if synonym in plain), None)
        found |= {role: name} if name else {}
    return found


def require_roles(names: Iterable[str], roles: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raises Refused where a column that was asked for does not exist, or where prompt or output were not found."""
    there_are = _listed(names)
    for role, name in given.items():
        if name and role not in roles:
            raise Refused(f"columns: {role} must be one there is, got {shown(name)}; there are {there_are}")
    missing = [role for role in ("prompt", "output") if role not in roles]
    if missing:
        verb = "could not be guessed and must be named" if not given else "must be named"
        raise Refused(f"columns: {' and '.join(missing)} {verb}; there are {there_are}")


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - EXAMPLES:,} more" if len(names) > EXAMPLES else ""
    return (", ".join(shorten(name, 30) for name in names[:EXAMPLES]) or "none") + more


def token_count(value, least: int) -> int:
    """A number of tokens out of a cell or a JSON value. Raises Unusable with the reason.

    >>> token_count("1,234", 0), token_count(" 12 ", 0), token_count(12.0, 0)
    (1234, 12, 12)
    """
    if type(value) is str:
        try:
            value = int(value)
        except ValueError:
            value = _spelled(value)
    if type(value) is not int:
        value = _whole(value)
    if value < least:
        raise Unusable(f"below {least}")
    if value > MAX_TOKENS:
        raise Unusable(f"above {MAX_TOKENS:,} tokens")
    return value


def _spelled(text: str) -> float | None:
    text = text.strip()
    if not text:
        return None
    grouped = GROUPED.fullmatch(text)
    try:
        return float(text.replace(grouped[1], "") if grouped else text)
    except ValueError:
        raise Unusable("not a whole number") from None


def _whole(value) -> int:
    if value is None:
        raise Unusable("missing")
    if not isinstance(value, float):
        raise Unusable("not a whole number")
    if not math.isfinite(value):
        raise Unusable("infinite or not a number")
    if not value.is_integer():
        raise Unusable("not a whole number")
    return int(value)


class Clock:
    """Times as they are read, row by row, and what they come to.

    A column holds numbers or dates; the rows of the rarer kind count as unreadable. Dates are kept in seconds from the
    first of them, so that a float holds every digit; without a zone they are UTC.
    """

    def __init__(self, decimal_comma: bool = False):
        self.decimal_comma = decimal_comma
        self.values, self.kinds = array("d"), bytearray()
        self.first: dict[int, list[tuple[int, str]]] = {0: [], NUMBER: [], DATED: []}
        self.base: int | None = None

    def add(self, line: int, value) -> None:
        """The time of one more row, from the line `line`."""
        kind, seconds = self._read(value)
        self.values.append(seconds)
        self.kinds.append(kind)
        if len(self.first[kind]) < EXAMPLES:
            self.first[kind].append((line, shown(value)))

    def kind(self) -> int:
        """What most times are, 0 where none can be read."""
        kinds = np.bincount(np.frombuffer(self.kinds, dtype=np.uint8), minlength=3)
        return 0 if not kinds[1:].any() else int(np.argmax(kinds[1:])) + 1

    def unit(self, known: str | None) -> str | None:
        """The unit of a column of numbers, `known` or by their size; None for dates."""
        kind = self.kind()
        if kind != NUMBER:
            return None
        typical = float(np.median(self.seconds()[self.readable()]))
        return known or next((unit for least, unit in EPOCHS if typical >= least), "seconds")

    def seconds(self) -> np.ndarray:
        """All times as they stand, before their unit."""
        return np.array(self.values, dtype=np.float64)

    def readable(self) -> np.ndarray:
        """Which rows have a time of the kind that most have."""
        return np.frombuffer(bytes(self.kinds), dtype=np.uint8) == self.kind()

    def unreadable_examples(self) -> list[tuple[int, str]]:
        """The first lines without a time, and what stands there."""
        return sorted(item for kind, items in self.first.items() if kind != self.kind() for item in items)[:EXAMPLES]

    def _read(self, value) -> tuple[int, float]:
        if isinstance(value, str):
            return self._read_text(value.strip())
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_TIME:
            return NUMBER, float(value)
        return 0, math.nan

    def _read_text(self, text: str) -> tuple[int, float]:
        # A number may have its fifth sign there too: 3.9e-05.
        if text[4:5] == "-" and (moment := MOMENT.fullmatch(text)):
            whole = _epoch_second(moment[1], moment[3])
            if whole is None:
                return 0, math.nan
            if self.base is None:
                self.base = whole
            return DATED, whole - self.base + (int(moment[2]) / 10 ** len(moment[2]) if moment[2] else 0.0)
        try:
            number = float(text)
        except ValueError:
            number = _spelled_time(text, self.decimal_comma)
        return (NUMBER, number) if abs(number) <= MAX_TIME else (0, math.nan)


@lru_cache(maxsize=4096)
def _epoch_second(text: str, zone: str | None) -> int | None:
    """Seconds since 1970 of a date and time; None where there is no such day or hour. Many rows share one second."""
    zone = "+00:00" if zone in (None, "Z", "UTC", "GMT") else zone
    try:
        return int(datetime.fromisoformat(text + zone).timestamp())
    except (ValueError, OverflowError):
        return None


def _spelled_time(text: str, decimal_comma: bool) -> float:
    """A number with a comma: between thousands where commas part the columns, else before its decimals."""
    if decimal_comma and text.count(",") == 1:
        text = text.replace(",", ".")
    elif grouped := GROUPED.fullmatch(text):
        text = text.replace(grouped[1], "")
    try:
        return float(text)
    except ValueError:
        return math.nan
