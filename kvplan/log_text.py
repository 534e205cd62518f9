"""Raw text of a log -> its lines as the engine wrote them: without colours, wrappers of containers, and hard wraps.

Nothing is judged here. A line keeps the number it has in the text, so that a figure can be traced to it.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kvplan.specs import parsed_json

MAX_MIB = 5
MAX_BYTES = MAX_MIB * 2**20
MAX_LINES = 100_000
"""A text of more bytes or line ends is read from its end: the last start counts."""
MAX_LINE = 20_000
"""Characters of one line that are looked at; engines print their figures in far fewer."""
MESSAGE_KEYS = ("log", "message", "msg", "textPayload", "text", "body", "line", "MESSAGE")
"""Where collectors keep the line they wrap as JSON."""
DEEPEST = 10
"""Levels of a JSON document that are searched for messages."""
LINE_END = re.compile(r"\r\n|\r|\n")
COLOUR = re.compile(r"(?:\x1b|\^\[|\\x1b|\\u001b|\\033|\\e)\[[0-9;:?]{0,20}[A-Za-z]")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
BEGINNING = re.compile(
    r"\s*(?:\(|\[|\{|INFO|WARNING|ERROR|DEBUG|WARN|\d{2,4}[-/:])|[\w./-]{1,60}(?:\s+\||\d:\s)|[A-Z]\w{1,60}:\s"
)
"""How a line of its own begins, and a wrapped rest hardly ever."""
FEWEST_WRAPPED, SHARE_WRAPPED = 2, 0.05
"""Lines of exactly the longest length with a rest below them, and their share of all, that make a text look
hard-wrapped; one more where others of that length have none."""
NARROWEST_WRAP, WIDEST_WRAP = 40, 400


@dataclass(frozen=True)
class LogLine:
    """One line: its number in the text, from 1, and what the engine wrote."""

    number: int
    text: str


def log_lines(text: str) -> list[LogLine]:
    """The lines of a log. Any text is one, however damaged.

    >>> [line.text for line in log_lines('{"log": "\\\\u001b[36mINFO\\\\u001b[0m ready\\\\n", "stream": "stderr"}')]
    ['INFO ready']
    """
    start = _beginning(text)
    first = 1 + sum(1 for _ in LINE_END.finditer(text, 0, start))
    found = [LogLine(number, line) for number, line in _unwrapped_json(text[start:], first) if line.strip()]
    return _rejoined(found)


def decoded(raw: bytes) -> str:
    """The text of a file: UTF-16 where it begins with its mark, as shells of Windows write it, else UTF-8 with what is
    none replaced."""
    is_utf_16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if is_utf_16 else "utf-8", errors="replace")


def is_cut(text: str) -> bool:
    """Whether a text is longer than what is read of it."""
    return _beginning(text) > 0


def _beginning(text: str) -> int:
    """Where in a text begins what is read of it."""
    start = max(0, len(text) - MAX_BYTES)
    ends = deque((end.end() for end in LINE_END.finditer(text, start)), maxlen=MAX_LINES + 1)
    return ends[0] if len(ends) > MAX_LINES else start


def _unwrapped_json(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Every line with its number and without its wrapper; an export that is one JSON document gives a line for each of
    its messages."""
    stripped = text.lstrip("\ufeff \t\r\n")
    is_document = stripped[:1] in ("[", "{") and "\n" in stripped.rstrip() and "\n{" not in stripped
    whole = parsed_json(stripped) if is_document else None
    raw = list(_messages(whole)) if isinstance(whole, (list, dict)) else LINE_END.split(text)
    for number, line in enumerate(raw, start=first):
        yield from ((number, _plain(part)) for part in LINE_END.split(_message(line)))


def _message(line: str) -> str:
    """What a line wraps, where it is a JSON object with a message; else the line."""
    if not line.lstrip().startswith("{"):
        return line
    found = parsed_json(line.strip())
    messages = list(_messages(found, texts=False)) if isinstance(found, dict) else []
    return messages[0].rstrip("\r\n") if messages else line


def _messages(found, texts: bool = True) -> Iterator[str]:
    """The messages of a JSON document in their order: of each object that has one, and with `texts` those of lists (a
    notebook keeps its output so); to a modest depth."""
    waiting = [(found, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, str):
            yield value
            continue
        message = _message_of(value) if isinstance(value, dict) else None
        if message is not None:
            yield message
        elif depth < DEEPEST and isinstance(value, dict):
            waiting += [(item, depth + 1) for item in reversed(value.values()) if isinstance(item, (dict, list))]
        elif depth < DEEPEST and isinstance(value, list):
            kinds = (dict, list, str) if texts else (dict, list)
            waiting += [(item, depth + 1) for item in reversed(value) if isinstance(item, kinds)]


def _message_of(value: dict) -> str | None:
    return next((value[key] for key in MESSAGE_KEYS if isinstance(value.get(key), str)), None)


def _plain(line: str) -> str:
    """A line without colours and control characters, cut to a length that can be searched."""
    return CONTROL.sub("", COLOUR.sub("", line[: 2 * MAX_LINE]))[:MAX_LINE]


def _rejoined(lines: list[LogLine]) -> list[LogLine]:
    """Lines that a terminal broke at its width, put together again; other texts as they are."""
    width = _wrap_width(lines)
    if width is None:
        return lines
    joined: list[LogLine] = []
    open_end = False
    for line in lines:
        if open_end and not BEGINNING.match(line.text) and len(joined[-1].text) < MAX_LINE:
            joined[-1] = LogLine(joined[-1].number, joined[-1].text + line.text)
        else:
            joined.append(line)
        open_end = len(line.text) == width
    return joined


def _wrap_width(lines: list[LogLine]) -> int | None:
    """The width at which a text was broken: many lines of exactly the longest length, each with a rest below it, and
    none longer."""
    longest = max((len(line.text) for line in lines), default=0)
    if not NARROWEST_WRAP <= longest <= WIDEST_WRAP:
        return None
    below_longest = [below.text for line, below in pairwise(lines) if len(line.text) == longest]
    rests = sum(not BEGINNING.match(text) for text in below_longest)
    enough = FEWEST_WRAPPED + (rests < len(below_longest))
    return longest if rests >= max(enough, SHARE_WRAPPED * len(lines)) else None
