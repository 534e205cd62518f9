"""Whether a long run of one user slows the sliders of another.

    python benchmarks/long_run.py [--moves N]

Serves the dashboard and opens it twice in headless Chromium. One page moves the context slider and waits for the
redrawn verdict, first alone, then while the other page runs a million requests under both policies, one run after
another. Prints median and 95th percentile of the moves, side by side.
"""

import argparse
import statistics
import time

from playwright.sync_api import Page, sync_playwright
from serving import serving

CHROMIUM = "/usr/bin/chromium"
DONE = "[data-testid=stApp][data-test-script-state=notRunning]"
LONG_RUNS = ("1,000,000", "none")


def moves(page: Page, number: int) -> list[float]:
    """Milliseconds from each press of a key on the context slider to the redrawn verdict."""
    slider = page.locator(".st-key-context input[type=range]")
    slider.focus()
    found = []
    for move in range(number):
        before = page.locator("h2").first.inner_text()
        start = time.perf_counter()
        page.keyboard.press("ArrowRight" if move % 2 == 0 else "ArrowLeft")
        page.wait_for_function("before => document.querySelector('h2').innerText !== before", arg=before)
        found.append(1000 * (time.perf_counter() - start))
        page.wait_for_timeout(150)
    return found


def choose(page: Page, name: str) -> None:
    page.locator(".st-key-long_run").get_by_text(name, exact=True).click()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moves", type=int, default=30)
    number = parser.parse_args().moves
    with serving() as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        user, other = browser.new_page(), browser.new_page()
        for page, path in ((user, "/"), (other, "/pool")):
            page.goto(server.address + path)
            page.wait_for_selector(DONE)
            page.wait_for_timeout(3000)
        moves(user, 4)
        alone = moves(user, number)
        beside = []
        while len(beside) < number:
            choose(other, LONG_RUNS[0])
            other.get_by_test_id("stProgress").wait_for()
            beside += moves(user, 10)
            choose(other, LONG_RUNS[1])
            other.wait_for_timeout(300)
        browser.close()
    print(f"{'':<28}{'median':>10}{'95%':>10}   of {number} moves of the context slider, ms")
    for name, found in (("alone", alone), ("while another user's run goes", beside)):
        print(f"{name:<30}{statistics.median(found):>8.0f}{statistics.quantiles(found, n=20)[-1]:>10.0f}")


if __name__ == "__main__":
    main()
