"""Text from outside, made safe to show: names come out of links, and markdown is active almost everywhere."""


def escape(text: str) -> str:
    """Text that markdown shows as it is.

    >>> print(escape("a *b* | <c>"))
    a \\*b\\* \\| \\<c\\>
    """
    for character in "\\`*_{}[]<>()#+!|~:$":
        text = text.replace(character, f"\\{character}")
    return text


def escape_sentence(sentence: str) -> str:
    """The same for a sentence whose decisive words stand between `**`."""
    return "**".join(escape(part) for part in sentence.split("**"))


def escape_line(text: str) -> str:
    r"""A text as a Markdown document shows it, on one line; an ampersand begins no entity.

    >>> print(escape_line("a & b\n# c"))
    a \& b \# c
    """
    return escape(one_line(text)).replace("&", "\\&")


def one_line(text: str) -> str:
    return " ".join(text.split())
