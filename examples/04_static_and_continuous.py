"""How much of a static batch idles: in closed form, and a backlog of 200 requests slot by slot."""

from kvplan import load_preset
from kvplan.batching import drain, exponential_utilisation, static_utilisation
from kvplan.lengths import from_table

lengths = from_table(load_preset("azure-conversation", "workload").table)
for batch in (8, 32, 128):
    used, law = static_utilisation(lengths, batch), exponential_utilisation(batch)
    print(f"batch {batch:3}: {used:.1%} of slot-steps used, exponential lengths {law:.1%}")

outputs = [output for _, output in load_preset("seeded-200", "workload").samples]
static, continuous = (drain(outputs, 16, policy) for policy in ("static", "continuous"))
print(f"static {static.steps:,} steps, {static.busy:.1%} busy")
print(f"continuous {continuous.steps:,} steps, {continuous.busy:.1%} busy, {static.steps / continuous.steps:.2f} times")
