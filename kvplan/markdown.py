"""Text from outside, made safe to show: names come out of links, and markdown is active almost everywhere."""

import re

MARKS = re.compile(r"[\\`*_{}\[\]<>()#+!|~:$&]")
BEGINS_LIST = re.compile(r"^(\s*)(?:(-)(?=[\s-]|$)|(\d{1,9})([.)])(?=\s|$))")
"""What makes a list or a rule of a line that begins so."""
REPLACED = re.compile(r":(?=//|[a-z][\w/+-]*:)|www(?=\.)|@(?=\w)|(?<!\S)[<>~-](?=(?:->|[>=-])(?:\s|$))", re.IGNORECASE)
"""What the browser replaces after all backslashes are gone: addresses by links, names between colons by icons and
pictures, arrows by signs."""
JOINER = "\u2060"
"""Nothing is seen of it, and what stands on both sides of it is no longer one word."""


def escape(text: str) -> str:
    """Text that markdown shows as it is.

    >>> print(escape("a *b* | <c> & - d"))
    a \\*b\\* \\| \\<c\\> \\& - d
    >>> print(escape("- a"), escape("1. a"), escape("1.5 a"))
    \\- a 1\\. a 1.5 a
    >>> escape("www.example.org") == f"www{JOINER}.example.org"
    True
    """
    text = MARKS.sub(r"\\\g<0>", REPLACED.sub(rf"\g<0>{JOINER}", text))
    return BEGINS_LIST.sub(lambda found: f"{found[1]}{found[3] or ''}\\{found[2] or found[4]}", text)


def escape_sentence(sentence: str) -> str:
    """The same for a sentence whose decisive words stand between `**`."""
    return "**".join(escape(part) for part in sentence.split("**"))


def escape_line(text: str) -> str:
    r"""The same on one line, as a Markdown document has it.

    >>> print(escape_line("a & b\n# c"))
    a \& b \# c
    """
    return escape(one_line(text))


def one_line(text: str) -> str:
    return " ".join(text.split())
