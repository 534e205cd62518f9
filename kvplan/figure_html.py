"""Plotly figures as HTML that needs no other file and no network: a script once, and a part of a page for each."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from kvplan.palette import Palette

CONFIG = {"displayModeBar": False, "displaylogo": False, "scrollZoom": False, "responsive": True}


def part(figure: go.Figure, name: str) -> str:
    """A figure as a part of a page that has the script; `name` is the id of its element."""
    return figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG, div_id=name, default_width="100%")


def page(title: str, style: str, body: str) -> str:
    """A page in HTML with the script in it; `title` is text, `style` and `body` are CSS and HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n<script>{get_plotlyjs()}</script>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def alone(figure: go.Figure, name: str, words: tuple[str, str, str], palette: Palette) -> str:
    """A page with one figure; `words` are its title, what it says, and what stands below it."""
    title, said, below = words
    style = (
        f"body {{ margin: 24px auto; max-width: 1000px; padding: 0 16px; background: {palette.page}; "
        f"color: {palette.ink}; font-family: system-ui, sans-serif; }}\n"
        f"h1 {{ font-size: 20px; margin: 0 0 4px; }}\np {{ margin: 0 0 16px; color: {palette.muted}; }}\n"
        "p.below { font-size: 12px; overflow-wrap: anywhere; }\n"
    )
    body = (
        f"<h1>{escape(title)}</h1>\n<p>{escape(said)}</p>\n{part(figure, name)}\n<p class='below'>{escape(below)}</p>"
    )
    return page(title, style, body)
