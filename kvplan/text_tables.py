"""Rows of words as text in columns, for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

NUMBER = re.compile(r"[-+$]?[0-9][0-9,]*(\.[0-9]+)?(%|×| [A-Za-z]+)?|–|none")


def lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A header and a line for each row, columns of numbers to the right; what is last is left as long as it is.

    >>> lines([{"tp": "1", "limit": "memory"}, {"tp": "16", "limit": "none"}])
    ['  tp  limit', '   1  memory', '  16  none']
    """
    names = list(rows[0]) if rows else []
    columns = [[name, *(row[name] for row in rows)] for name in names]
    placed = [_placed(column) for column in columns]
    return ["  " + "  ".join(cells).rstrip() for cells in zip(*placed, strict=True)]


def is_numbers(cells: Iterable[str]) -> bool:
    """Whether all cells of a column are numbers, with a unit or not, or nothing."""
    return all(map(NUMBER.fullmatch, cells))


def _placed(column: list[str]) -> list[str]:
    """The cells of a column, padded to its width."""
    width = max(map(len, column))
    to_the_right = is_numbers(column[1:])
    return [cell.rjust(width) if to_the_right else cell.ljust(width) for cell in column]
