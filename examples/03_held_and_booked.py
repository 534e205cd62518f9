"""What a request of a hybrid holds, what the engine books for it, layer kind by layer kind, and why."""

from kvplan import Plan, evaluate

report = evaluate(Plan(model="gemma-3-27b", gpu="h100-sxm", context=32768))
for group in report.engine.groups:
    print(
        f"{group.kind:8} {group.layers:2} layers, blocks of {group.block_tokens}: {group.blocks_per_request:,} blocks"
    )

held, booked = report.cache.request_bytes_held, report.cache.request_bytes_booked
print(f"held {held / 2**30:.2f} GiB, booked {booked / 2**30:.2f} GiB a device")
for cost in report.breakdown:
    print(f"- {cost.reason}")
