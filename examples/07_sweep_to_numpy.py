"""A grid of plans as numpy arrays: the longest context that still runs 16 sequences, for each tp and cache width."""

from kvplan import Plan, sweep

axes = {"tp": [2, 4, 8], "kv_dtype": ["auto", "fp8"], "context": [2**power for power in range(12, 18)]}
found = sweep(Plan(model="llama-3.1-70b"), axes, columns=["capacity.batch_ceiling"])
ceiling = found.columns["capacity.batch_ceiling"]
print(found.shape, ceiling.dtype)
for i, tp in enumerate(axes["tp"]):
    for j, dtype in enumerate(axes["kv_dtype"]):
        enough = [context for context, batch in zip(axes["context"], ceiling[i, j], strict=True) if batch >= 16]
        print(f"tp {tp} {dtype:4} {max(enough, default=0):7,} tokens")
