"""Text from outside, made safe to show on a page."""

from kvplan.markdown import escape, escape_sentence

__all__ = ["escape", "escape_sentence"]
