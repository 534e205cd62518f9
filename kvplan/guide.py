"""The Guide's four questions: their answers from a plan, guesses read from text, and how far off a guess is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kvplan.report import Report, evaluate

SHORT, LONG = 2048, 8192
"""Tokens of the two contexts at which requests are guessed."""
NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
SIGNS = {"percent": "%", "times": "x×"}
"""What may stand behind a guess."""
EXACT, NEAR = 0.005, 0.05
"""Shares by which a guess may miss and be called right, or right within 5%."""

Kind = Literal["requests", "percent", "times"]


@dataclass(frozen=True)
class Question:
    """One of the four: its name in the session, what is asked, what kind of number answers it, and its help."""

    name: str
    label: str
    kind: Kind
    help: str


QUESTIONS = (
    Question(
        "fits_short",
        f"Requests that fit at {SHORT:,} tokens",
        "requests",
        f"How many requests this plan runs at once if each books {SHORT:,} tokens. A whole number, such as 100.",
    ),
    Question(
        "fits_long",
        f"Requests that fit at {LONG:,} tokens",
        "requests",
        f"How many requests this plan runs at once if each books {LONG:,} tokens. A whole number, such as 100.",
    ),
    Question(
        "busy",
        "Busy share of a static batch, %",
        "percent",
        "Of 100 slot-steps of a static batch of this plan's size, how many make a token. In percent, such as 75.",
    ),
    Question(
        "gain",
        "Continuous over static, times",
        "times",
        "How many times the tokens of a static batch a continuous one makes in as many steps. A multiple, such as 1.5.",
    ),
)
RULES = {
    "requests": "a whole number from 0 to 10,000,000, such as 100",
    "percent": "a percentage from 1 to 100, such as 75",
    "times": "a multiple above 0 and up to 1,000, such as 1.5",
}
LIMITS = {"requests": (0, 1e7), "percent": (1, 100), "times": (1e-6, 1000)}


@dataclass(frozen=True)
class Answers:
    """The same plan at its own context and at both that are asked for; `numbers` are the four by a question's name:
    requests, percent and times, as the questions ask for them."""

    own: Report
    short: Report
    long: Report

    @property
    def numbers(self) -> dict[str, float]:
        found = self.own.batching
        return {
            "fits_short": self.short.capacity.batch_ceiling,
            "fits_long": self.long.capacity.batch_ceiling,
            "busy": 100 * found.static_utilisation,
            "gain": found.gain,
        }


def runs(report: Report) -> bool:
    """Whether there is something to walk through: the engine starts, the device has the memory, a request runs."""
    return report.engine.fits and report.capacity.batch_ceiling > 0 and report.memory.left_free_bytes >= 0


def answers(report: Report) -> Answers:
    """The four answers of a plan that runs, each the report's own number of the plan at that context."""
    return Answers(own=report, short=_at(report, SHORT), long=_at(report, LONG))


def _at(report: Report, context: int) -> Report:
    return evaluate(report.plan.model_copy(update={"context": context}), report.setting.structure.handed)


def read_guesses(texts: dict[str, str]) -> tuple[dict[str, float], list[str]]:
    """The guesses among texts by question, those left empty aside, and a line for each that cannot be read."""
    guesses, wrong = {}, []
    for question in QUESTIONS:
        text = texts.get(question.name, "").strip()
        if not text:
            continue
        try:
            guesses[question.name] = read_guess(question.kind, text)
        except ValueError as error:
            wrong.append(f"{question.label}: {error}")
    return guesses, wrong


def read_guess(kind: Kind, text: str) -> float:
    """One guess as a number. Raises ValueError with the rule and what was given.

    >>> read_guess("requests", "1,200"), read_guess("percent", "75%"), read_guess("times", "2.5x")
    (1200.0, 75.0, 2.5)
    """
    bare = text.strip().rstrip(SIGNS.get(kind, "")).strip()
    least, most = LIMITS[kind]
    number = float(bare.replace(",", "")) if NUMBER.fullmatch(bare) else None
    whole = kind != "requests" or (number is not None and number.is_integer())
    if number is None or not whole or not least <= number <= most:
        raise ValueError(f"must be {RULES[kind]}; got {text.strip()[:20]}")
    return number


def how_far(guess: float, answer: float) -> str:
    """How far a guess is from the answer, as a ratio in words.

    >>> how_far(54, 54), how_far(100, 98), how_far(40, 50), how_far(300, 100), how_far(25, 100)
    ('right', 'right within 5%', '20% too low', '3.0 times too high', '4.0 times too low')
    """
    if guess == answer:
        return "right"
    if not answer:
        return "too high: not one fits"
    if not guess:
        return "too low: some do fit"
    ratio = guess / answer
    if abs(ratio - 1) < NEAR:
        return "right" if abs(ratio - 1) < EXACT else "right within 5%"
    if ratio >= 2:
        return f"{ratio:,.1f} times too high"
    if ratio <= 0.5:
        return f"{1 / ratio:,.1f} times too low"
    return f"{ratio - 1:.0%} too high" if ratio > 1 else f"{1 - ratio:.0%} too low"
