"""What a plan changes of a model: its layers and their shapes, and the weights that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from kvplan.plan import Plan
from kvplan.specs import LayerGroup, ModelSpec, expanded, runs
from kvplan.units import whole_bytes
from kvplan.weights import weight_bytes_at


def layer_total(spec: ModelSpec) -> int:
    """All layers of a model, those without a cache too."""
    return sum(group.layers for group in spec.groups)


def with_groups(preset: ModelSpec, groups: tuple[LayerGroup, ...]) -> tuple[ModelSpec, list[str]]:
    """The model with other layers in its place; parameters and weights scale with their number."""
    changed = preset.model_copy(update={"groups": groups, "notes": ()})
    heads, notes = _query_heads(preset, groups)
    sizes = _scaled(preset, layer_total(changed), ("weight_bytes", "loaded_weight_bytes"))
    return changed.model_copy(update={"num_attention_heads": heads, **sizes}), notes


def _scaled(model: ModelSpec, layers: int, also: Iterable[str] = ()) -> dict:
    """The counts of a model's parameters, and what else is named, with another number of layers."""
    names = [name for name in type(model).model_fields if name.endswith("parameters")]
    return {
        name: (value := getattr(model, name)) and max(1, value * layers // layer_total(model))
        for name in (*names, *also)
    }


def with_overrides(base: ModelSpec, plan: Plan) -> tuple[ModelSpec, list[str]]:
    """The model with the plan's layers, kv_heads and head_dim in its growing full-attention layers."""
    names = [name for name in ("layers", "kv_heads", "head_dim") if getattr(plan, name) is not None]
    shapes = {group.model_copy(update={"layers": 1}) for group in base.groups if group.kind == "full"}
    if not names:
        return base, []
    if len(shapes) != 1:
        return base, [f"{name}: ignored, {base.name} has no full-attention layers of one shape" for name in names]
    (shape,) = shapes
    values = {name: getattr(plan, name) for name in names if name != "layers"}
    if "head_dim" in values:
        values["value_head_dim"] = values["head_dim"]
    full = shape.model_copy(update=values)
    layers = [full if layer.kind == "full" else layer for layer in expanded(base.groups)]
    if plan.layers is not None:
        layers = _respread(full, plan.layers, [layer for layer in layers if layer.kind != "full"])
    heads, notes = _query_heads(base, (full,))
    counts = _scaled(base, len(layers)) if plan.layers is not None else {}
    return base.model_copy(update={"groups": runs(layers), "num_attention_heads": heads, **counts}), notes


def _respread(full: LayerGroup, number: int, others: list[LayerGroup]) -> list[LayerGroup]:
    """`number` full layers spread evenly among the others, the last of all being full as families have it."""
    total = number + len(others)
    ends = {(index + 1) * total // number - 1 for index in range(number)}
    rest = iter(others)
    return [full if index in ends else next(rest) for index in range(total)]


def _query_heads(base: ModelSpec, groups: Iterable[LayerGroup]) -> tuple[int | None, list[str]]:
    """Query heads come in whole groups for each KV head; where they cannot, the model is one we know no heads of."""
    heads = base.num_attention_heads
    odd = [group.kv_heads for group in groups if group.kv_heads and heads and heads % group.kv_heads]
    if not odd:
        return heads, []
    return None, [
        f"kv_heads: {odd[0]} do not divide the {heads} query heads of {base.name}; "
        "the check of query heads against tp is left out"
    ]


def weight_bytes(plan: Plan, base: ModelSpec, spec: ModelSpec) -> int:
    """Weights of the whole model as an engine holds them; they scale with its layers and with `weight_dtype` unless
    given. Drafting with layers for multi-token prediction loads these as well, so all that was released."""
    if plan.weights_gib is not None:
        return whole_bytes(plan.weights_gib)
    released = base.weight_bytes or 0
    loaded = size = base.loaded_weight_bytes or released
    if plan.weight_dtype is not None and base.parameters is not None:
        size = weight_bytes_at(plan.weight_dtype, base.parameters, base.unquantized_parameters or 0)
        size += max(0, loaded - 2 * base.parameters) if base.multimodal else 0
    drafting = Fraction(released, loaded) if loads_all(plan, base) else 1
    return round(size * drafting * Fraction(layer_total(spec), layer_total(base)))


def loads_all(plan: Plan, model: ModelSpec) -> bool:
    """Whether drafting loads layers that an engine leaves in the file otherwise: those for multi-token prediction."""
    left_out = model.loaded_weight_bytes is not None and (model.weight_bytes or 0) > model.loaded_weight_bytes
    return plan.spec_method == "mtp" and left_out
