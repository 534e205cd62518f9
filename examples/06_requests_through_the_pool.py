"""A trace through the plan's block pool under both policies: who runs, who is preempted, how long it takes."""

from kvplan import Plan, load_preset
from kvplan.catalog import resolve
from kvplan.lengths import draw
from kvplan.simulate import percentiles, simulate

plan = Plan(gpu="l4", kv_dtype="fp8", weight_dtype="fp8", context=8192)
prompts, outputs = draw(resolve(plan).lengths, 400, seed=1)
requests = [(0.0, int(prompt), int(output)) for prompt, output in zip(prompts, outputs, strict=True)]
print(load_preset(plan.workload, "workload").name)
for policy in ("reserve", "on_demand"):
    run = simulate(requests, plan, policy=policy, step_time=0.05)
    (p95,) = percentiles(run.ttft_s, [0.95])
    print(f"{policy:9} {run.running_before_drain:5.1f} running, {run.preemptions} preemptions, {run.makespan_s:.1f} s")
    print(f"{'':9} p95 TTFT {p95:.1f} s; L = {run.mean_in_system:.2f}, λW = {run.rate * run.mean_time_in_system:.2f}")
