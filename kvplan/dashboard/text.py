"""Text from outside, made safe to show."""


def escape(text: str) -> str:
    """Text that markdown shows as it is."""
    for character in "\\`*_{}[]<>()#+!|~:$":
        text = text.replace(character, f"\\{character}")
    return text
