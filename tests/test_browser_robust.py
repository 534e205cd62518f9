"""A link full of markup in a real browser: on no page does anything of it become an element or a request."""

from urllib.parse import urlencode

import browsing  # noqa: F401  skips where there is no Chromium
import pytest
from hostile import MARKUP, query_with
from test_fuzz import NAMES

pytestmark = pytest.mark.browser

TEXT = " ".join(MARKUP)
BORN_OF_IT = """() => {
    const main = [...document.querySelectorAll('[data-testid=stMain], [data-testid=stSidebar]')];
    const wanted = 'b, i, u, font, script, iframe, .katex, del, img[src*="203.0.113"], img[alt="Streamlit logo"], '
        + '[onerror], a[href*="203.0.113"], a[href*="example.org"], a[href^="mailto:"], [aria-label="delete icon"]';
    const found = main.flatMap(part => [...part.querySelectorAll(wanted)]).map(each => each.outerHTML.slice(0, 200));
    const headings = main.flatMap(part => [...part.querySelectorAll('h1, h2, h3')]).map(each => each.innerText);
    return found.concat(headings.filter(words => words.trim() === 'heading'));
}"""


@pytest.mark.parametrize("page", NAMES)
def test_markup_of_a_link_becomes_nothing(page, open_page):
    address = "/" if page == "ceiling" else f"/{page.replace('_', '-')}"
    query = urlencode(query_with(TEXT[:300]) | dict.fromkeys(MARKUP, "1"))
    with open_page(f"{address}?{query}") as tab:
        tab.wait_for_selector("[data-testid=stAlert]")
        shown = tab.locator("[data-testid=stAlert]").first.inner_text()
        assert "<b>bold</b>" in shown
        assert "[click](" in shown
        assert tab.evaluate(BORN_OF_IT) == []


def test_the_check_above_finds_elements(open_page):
    with open_page() as tab:
        tab.evaluate(
            "document.querySelector('[data-testid=stMain]').insertAdjacentHTML('beforeend', '<b>a</b><h1>heading</h1>')"
        )
        assert tab.evaluate(BORN_OF_IT) == ["<b>a</b>", "heading"]
