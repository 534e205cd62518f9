"""A plan as a link, and what a link that is partly wrong opens."""

from urllib.parse import parse_qs

from kvplan import Plan, decode_link, encode_link

plan = Plan(model="qwen3-32b", gpu="h200", tp=2, context=65536)
print(encode_link(plan, base="http://localhost:8501/", full=False))

full = parse_qs(encode_link(plan).removeprefix("?"))
print(f"format {full['v'][0]}; batch ceiling, KV cache tokens and bytes of the pool: {full['r'][0]}")

opened, notes = decode_link("http://localhost:8501/pool?tp=4&colour=red&context=-1")
print(opened == Plan(tp=4))
for note in notes:
    print(f"- {note}")
