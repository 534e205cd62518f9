"""What nobody should send, made on purpose: links, files and names that the tests throw at every door."""

import base64
import json
import random
import string
import zlib
from urllib.parse import quote

from kvplan import Plan, catalog, load_preset
from kvplan.dashboard.inputs import BOUNDS, CHOICES
from kvplan.texts import spec_text, table_text

FIELDS = (*Plan.model_fields,)
OWN = ("v", "made", "r", "preset", "doc", "_", "b.tp", "a.model", "embed", "embed_options", "TP", " tp", "tp[]", "")
"""Keys of a link that are no field of a plan."""
MARKUP = (
    "<b>bold</b>",
    "<img src=http://203.0.113.1/x.png onerror=alert(1)>",
    "![pixel](http://203.0.113.1/y.png)",
    "[click](http://203.0.113.1/)",
    "$\\frac{1}{2}$",
    "$$x^2$$",
    ":red[red] :red-badge[badge] :material/delete: :streamlit: :smile:",
    "`code` **strong** ~~gone~~ | cell |",
    "# heading",
    "http://203.0.113.1/auto www.example.org me@example.org",
    "&lt;b&gt; &copy; <!-- -->",
    "=cmd|'/c calc'!A1",
)
NUMBERS = (
    "0", "-0", "-1", "1", "2", "3", "7", "64", "65", "0.5", "1.5", "1e3", "1e400", "-1e400", "1e-400", "nan", "inf",
    "-inf", "1_000", "1,000", "0x10", "٤", "４", "1" * 5000, "9" * 25, str(2**24), str(2**24 + 1), str(2**63),
    "16777216", "4096", "65536", "1048576", "1e15", "0.0000001", "true", "false", "None", "null", "auto", "",
)  # fmt: skip
WORDS = (
    "auto", "", " ", "\0", "\n", "\x1b[31m", "\u202e", "\ud800", "é", "𝔘" * 40, "a" * 5000, "../../etc/passwd", "%",
    "%zz", "{}", "[]", "fp8", "bf16", "int4", "mtp", "eagle3", "on_demand", "llm_class", "fixed", "0.11",
    "v0.7.3.post1", "9" * 40 + ".1", "2026-02-30", "2026-12-01", *MARKUP,
)  # fmt: skip
BROKEN = ("%", "%%", "%u0041", "%f", "%ff%fe", "%00", "%0a", "&&&", "====", "?", "#", ";", "+", "a=b=c")
LAYERS = (
    "full:32x8x128",
    "(sliding1024:5x8x128,full:1x8x128)*10",
    "full:4096x4096x65536",
    "(full:1x1x1)*4096",
    "chunked1:1x1x1,sliding16777216:1x1x1",
    "((full:1x1x1)*2)*2",
    "full:1x1x1," * 300 + "full:1x1x1",
    "full:0x0x0",
    "(" * 2000,
)


def queries(number: int, seed: int) -> list[str]:
    """So many query strings: valid, wrong, extreme, broken, and all at once."""
    chance = random.Random(seed)
    return ["&".join(_parameter(chance) for _ in range(chance.choice((1, 2, 3, 5, 8, 12)))) for _ in range(number)]


def _parameter(chance: random.Random) -> str:
    if chance.random() < 0.04:
        return chance.choice(BROKEN)
    name = chance.choice(FIELDS) if chance.random() < 0.85 else chance.choice((*OWN, *WORDS))
    value = value_of(chance, name)
    written = value if chance.random() < 0.1 else quote(value, safe="", errors="replace")
    if chance.random() < 0.05:
        written += "&" + quote(name, errors="replace") + "=" + quote(value_of(chance, name), errors="replace")
    return f"{quote(name, errors='replace')}={written}"


def value_of(chance: random.Random, name: str) -> str:
    """A value for a field: of the right kind more often than not, so that the rest of the page is reached."""
    if chance.random() < 0.15:
        return chance.choice((*NUMBERS, *WORDS))
    if name in ("model", "gpu", "workload", "preset"):
        return chance.choice(catalog.presets("plan" if name == "preset" else name))
    if name == "spec":
        return mangled(chance, packed_model(chance))
    if name == "table":
        return mangled(chance, packed_table(chance))
    if name == "groups":
        return mangled(chance, chance.choice(LAYERS))
    if name == "r":
        return ".".join(chance.choice(NUMBERS) for _ in range(3))
    if name in CHOICES:
        return str(chance.choice(CHOICES[name]))
    if name in BOUNDS:
        return chance.choice((*map(str, BOUNDS[name]), *NUMBERS))
    return chance.choice(("true", "false")) if name in FIELDS else chance.choice(NUMBERS)


def packed(data) -> str:
    """Anything as a link packs it."""
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(zlib.compress(text, 9)).decode().rstrip("=")


def packed_model(chance: random.Random) -> str:
    return spec_text(load_preset(chance.choice(catalog.presets("model")), "model"))


def packed_table(chance: random.Random) -> str:
    rows = [
        (chance.randint(1, 2**24), chance.randint(1, 2**31), chance.randint(0, 2**31))
        for _ in range(chance.randint(1, 40))
    ]
    return chance.choice((table_text(rows), *BOMBS))


BOMBS = (
    packed(b"[" * 60_000),
    packed(b" " * 60_000 + b"[]"),
    packed(b"0" * 10_000_000)[:4096],
    packed(b"[" + b"9" * 60_000 + b"]"),
    packed(b"\xff" * 1000),
    packed([[2**24, 2**31, 2**31]] * 2000),
    packed([[1, 1, 0]] * 2000),
    packed({"id": "a"}),
    packed(b'{"id":"a","id":"b"}'),
    packed("text"),
    packed(None),
)


def mangled(chance: random.Random, word: str) -> str:
    """A packed word as it is, cut, changed in a place, doubled, or swollen."""
    how = chance.randrange(6)
    at = chance.randrange(len(word) or 1)
    if how == 1:
        return word[:at]
    if how == 2:
        return word[:at] + chance.choice(string.printable) + word[at + 1 :]
    if how == 3:
        return word * 2
    if how == 4:
        return chance.choice(BOMBS)
    return word


def carried(text: str) -> str:
    """A model, packed, that has this text wherever a link may carry any text."""
    model = load_preset("llama-3.1-8b", "model")
    free = {"notes": (text,) * 4, "hf_id": text, "model_type": text[:120]}
    return spec_text(model.model_copy(update=free))


def query_with(text: str) -> dict[str, str]:
    """A link with a text in a model, and in fields and names that are none: all of it is dropped with a note."""
    return {"spec": carried(text), text: "1", "context": text, "gpu": text, "preset": text, "v": text}
