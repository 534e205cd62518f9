"""How many sequences fit, which limit binds, and what one lever does to it."""

from kvplan import Plan, evaluate

plan = Plan(model="llama-3.1-70b", gpu="h100-sxm", tp=4, context=32768)
for name, changes in {"as it is": {}, "fp8 cache": {"kv_dtype": "fp8"}, "tp 8": {"tp": 8}}.items():
    report = evaluate(plan.model_copy(update=changes))
    found = report.capacity
    print(f"{name:10} {found.batch_ceiling:4} reserved, {found.on_demand_ceiling:4} on demand, {found.binding} binds")
    print(f"{'':10} pool {report.memory.pool_bytes / 2**30:.1f} GiB a device")

refused = evaluate(plan.model_copy(update={"tp": 1})).capacity
print(f"on one GPU: {refused.binding}, smallest tp {refused.min_tp}")
