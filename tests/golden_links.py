"""Links that were given away, each with the plan, the notes and the results it opened with when it was added.

`golden_links.json` has one a line. An entry is only ever added, never changed and never taken out: a link that somebody
keeps must open the same plan with the same results in every later release. To add one, written by a release:

    python tests/golden_links.py NAME LINK
"""

import json
import sys
from pathlib import Path

from kvplan.links import decode_comparison
from kvplan.plan import to_text
from kvplan.recorded import results_of

FILE = Path(__file__).with_name("golden_links.json")


def entries():
    return json.loads(FILE.read_text(encoding="utf-8"))


def entry_of(name, link):
    """What a link opens today: every field that is set, what was dropped, and the three results; the plans beside the
    first, where it has any."""
    (plan, *others), notes = decode_comparison(link)
    entry = {"name": name, "link": link, "plan": fields_of(plan), "notes": notes, "results": results_of(plan)}
    return entry | ({"others": [fields_of(other) for other in others]} if others else {})


def fields_of(plan):
    """Every field that is set, as text."""
    return {field: text for field, text in to_text(plan).items() if text != "auto" or getattr(plan, field) == "auto"}


def add(name, link):
    """Put the link at the end of the file. Raises ValueError where the name is taken."""
    known = entries() if FILE.exists() else []
    if any(entry["name"] == name for entry in known):
        raise ValueError(f"{name}: is there already, and an entry is never changed")
    lines = ",\n".join(json.dumps(entry) for entry in [*known, entry_of(name, link)])
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    add(*sys.argv[1:])
