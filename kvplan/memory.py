"""One device's memory: weights, activations, workspace, allocator overhead, the pool, and what is left free."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.arrays import ceil, choose, floor, maximum
from kvplan.catalog import Setting
from kvplan.units import ceil_div


@dataclass(frozen=True)
class Memory:
    """Bytes of one device. The six parts add up to `total_bytes` while `shortfall_bytes` is 0.

    `left_free_bytes` is the share utilization leaves to others; it is negative where a pool given in bytes, or by
    SGLang's fraction, is more than the device has left. `shortfall_bytes` is by how much weights and the rest exceed
    total x utilization. `non_torch_bytes` and `cuda_graph_bytes` are the parts of `workspace_bytes`, None where only
    their sum was given. `pool_band_bytes`: nine in ten pools of public start-ups lie this near to their estimate; 0
    where nothing is estimated.
    """

    total_bytes: int
    weight_bytes: int
    activation_bytes: int
    workspace_bytes: int
    overhead_bytes: int
    pool_bytes: int
    left_free_bytes: int
    shortfall_bytes: int
    non_torch_bytes: int | None = None
    cuda_graph_bytes: int | None = None
    pool_band_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        """What is taken whatever the cache: weights, activations and workspace."""
        return self.weight_bytes + self.activation_bytes + self.workspace_bytes

    @property
    def signed_pool_bytes(self) -> int:
        """The pool as engines print it: below zero by what is missing."""
        return self.pool_bytes - self.shortfall_bytes


def budget(setting: Setting) -> Memory:
    """Where one device's memory goes: weights split over tp and pp, and what the rest leaves for the cache.

    Its bytes are arrays where numbers of the plan are.
    """
    plan, startup = setting.plan, setting.startup
    weight_bytes = ceil_div(setting.weight_bytes, plan.tp * plan.pp)
    static_bytes = None
    if plan.mem_fraction_static is not None:
        static_bytes = static_pool(
            total_bytes=setting.total_bytes,
            fraction=plan.mem_fraction_static,
            weight_bytes=weight_bytes,
            non_torch_bytes=startup.outside_bytes,
        )
    return split(
        total_bytes=setting.total_bytes,
        utilization=setting.utilization,
        weight_bytes=weight_bytes,
        activation_bytes=startup.activation_bytes,
        workspace_bytes=startup.workspace_bytes,
        overhead_fraction=plan.allocator_overhead_fraction,
        given_pool_bytes=plan.kv_cache_memory_bytes,
        static_bytes=static_bytes,
        non_torch_bytes=startup.non_torch_bytes,
        cuda_graph_bytes=startup.cuda_graph_bytes,
        pool_band_bytes=startup.band_bytes,
    )


def static_pool(*, total_bytes: int, fraction: float, weight_bytes: int, non_torch_bytes: int) -> int:
    """SGLang's pool: `mem_fraction_static` of what is free before loading holds weights and cache; activations and
    graphs live in the rest. Negative by what the weights exceed their share.

    Source: sgl-project/sglang#24523 (available 17.94 of 138.17 GB after loading, fraction 0.90: 4.13 GB).
    """
    return floor((total_bytes - non_torch_bytes) * fraction) - weight_bytes


def split(
    *,
    total_bytes: int,
    utilization: float,
    weight_bytes: int,
    activation_bytes: int,
    workspace_bytes: int,
    overhead_fraction: float = 0.0,
    given_pool_bytes: int | None = None,
    static_bytes: int | None = None,
    non_torch_bytes: int | None = None,
    cuda_graph_bytes: int | None = None,
    pool_band_bytes: int = 0,
) -> Memory:
    """One device's bytes from plain numbers, or from arrays of them.

    The engine may use ceil(total x utilization). What weights, activations and workspace leave of it is the pool and
    the allocator's overhead, which is `overhead_fraction` of the pool. `static_bytes`, where given, stand for what is
    left so; a pool given in bytes is taken as given.
    Source: vLLM 0.32, gpu_worker (the budget); Kwon et al., SOSP 2023 (what a pool is).
    """
    fixed_bytes = weight_bytes + activation_bytes + workspace_bytes
    if given_pool_bytes is not None:
        pool_bytes = given_pool_bytes
        overhead_bytes = floor(given_pool_bytes * overhead_fraction)
        left_free_bytes = total_bytes - fixed_bytes - overhead_bytes - pool_bytes
        shortfall_bytes = 0
    else:
        left_bytes = ceil(total_bytes * utilization) - fixed_bytes if static_bytes is None else static_bytes
        available_bytes, shortfall_bytes = maximum(0, left_bytes), maximum(0, -left_bytes)
        pool_bytes = floor(available_bytes / (1 + overhead_fraction))
        overhead_bytes = available_bytes - pool_bytes
        left_free_bytes = choose(shortfall_bytes > 0, 0, total_bytes - fixed_bytes - available_bytes)
    return Memory(
        total_bytes=total_bytes,
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
        workspace_bytes=workspace_bytes,
        overhead_bytes=overhead_bytes,
        pool_bytes=pool_bytes,
        left_free_bytes=left_free_bytes,
        shortfall_bytes=shortfall_bytes,
        non_torch_bytes=non_torch_bytes,
        cuda_graph_bytes=cuda_graph_bytes,
        pool_band_bytes=pool_band_bytes,
    )
