"""The time of one step: what it reads over the bandwidth, or what it computes over the peak, whichever is longer.

A step takes some tokens of prompts and one token of each decoding sequence (more with speculation) through all layers.
Its kernels are of two kinds that take turns: matrices, whose weights are read once for all tokens together, and
attention, for which each sequence reads its own cache. Within each kind reading and computing overlap, so the longer
counts; all-reduces and what the host adds come on top.

Source: Williams et al., Roofline, CACM 2009; Pope et al., Efficiently Scaling Transformer Inference, 2022 (the terms).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kvplan import cache
from kvplan.catalog import Setting
from kvplan.overrides import layer_total, loads_all
from kvplan.roofline_facts import ROPE_DIM, STAGE_S, collective_s, collectives_per_layer, math_rate
from kvplan.specs import ATTENTION_KINDS, LayerGroup
from kvplan.weights import weight_bytes_at

ACTIVATION_BYTES = 2
"""Activations cross a link in 16 bits."""


@dataclass(frozen=True)
class Reach:
    """`per_token` of each token a sequence reads in its layers, up to `limit` of them (a window, or a top-k)."""

    limit: float
    per_token: float

    def over(self, tokens: float) -> float:
        return self.per_token * (tokens if tokens < self.limit else self.limit)

    def over_prompt(self, attended: float) -> float:
        """The mean over tokens that attend evenly to 0 ... 2 x `attended` others: a limit cuts the later ones."""
        if 2 * attended <= self.limit:
            return self.per_token * attended
        return self.per_token * (self.limit - self.limit * self.limit / (4 * attended))


@dataclass(frozen=True)
class Work:
    """What steps of a plan read and compute, on the way of one token through all pipeline stages, one device each.

    Bytes: `weight_bytes` of what every token passes, `expert_bytes` of all routed experts, of which a token passes
    `expert_share`; `reads` of the cache for each sequence, `state_bytes` of its states, read and written.
    FLOP: `body_flop` for each token, `head_flop` for each token that yields another, `attention` for each token that
    one attends to, in decoding, and `prompt_attention` in a prefill. `draft_bytes` are read for each drafted token.
    `reduced_bytes` of each token go through each of `collectives` all-reduces.
    """

    weight_bytes: float
    expert_bytes: float
    expert_share: float
    reads: tuple[Reach, ...]
    state_bytes: float
    body_flop: float
    head_flop: float
    attention: tuple[Reach, ...]
    prompt_attention: tuple[Reach, ...]
    draft_bytes: float
    collectives: int
    reduced_bytes: int

    def weights_read(self, tokens: float) -> float:
        """Bytes of weights that a step of so many tokens touches; experts as under even, independent routing."""
        return self.weight_bytes + self.expert_bytes * (1 - (1 - self.expert_share) ** tokens)

    def cache_read(self, tokens: float) -> float:
        """Bytes that decoding one token of a sequence of so many reads of its cache."""
        return sum([reach.over(tokens) for reach in self.reads]) + self.state_bytes

    def decode_attention(self, tokens: float) -> float:
        """FLOP of attention for one token of a sequence of so many."""
        return sum([reach.over(tokens) for reach in self.attention])

    def prefill_attention(self, attended: float) -> float:
        """FLOP of attention for one token of a prompt that attends to so many on average."""
        return sum(reach.over_prompt(attended) for reach in self.prompt_attention)


class StepParts(NamedTuple):
    """Seconds of a step's parts: of its matrices reading weights and computing, of attention reading the cache and
    computing, of all-reduces and of the host."""

    weights_s: float
    matrices_s: float
    cache_s: float
    attention_s: float
    reducing_s: float
    overhead_s: float

    @property
    def total_s(self) -> float:
        """Reading and computing overlap within matrices and within attention."""
        return max(self[0], self[1]) + max(self[2], self[3]) + self[4] + self[5]

    @property
    def reading_s(self) -> float:
        """Of the total, where reading is what takes the time."""
        return (self[0] if self[0] >= self[1] else 0.0) + (self[2] if self[2] >= self[3] else 0.0)

    @property
    def binding(self) -> str:
        """Whether reading or computing takes more of the step."""
        busy = self.total_s - self.reducing_s - self.overhead_s
        return "memory_bandwidth" if 2 * self.reading_s >= busy else "compute"


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of a plan: a function of its prompt tokens, its decoding sequences and the tokens these and
    the prompts hold together, as `simulate` takes it.

    Rates are of one device, after efficiency. `attended` is what a prompt's token attends to on average; `drafted`
    tokens are tried for each sequence, and `accepted` come out of a step, its own included. `computed_share` of a
    prompt's tokens are computed, the others found. `given_s` is how long every step takes where the plan says so.
    """

    work: Work
    weight_bytes_per_s: float
    cache_bytes_per_s: float
    flop_per_s: float
    attention_flop_per_s: float
    overhead_s: float
    latency_s: float
    reduced_s_per_byte: float
    stages: int
    attended: float
    drafted: int
    accepted: float
    computed_share: float = 1.0
    given_s: float | None = None

    def __call__(self, prefill_tokens: float, decoding: float, resident_tokens: float) -> float:
        """Seconds until each decoding sequence has one more token.

        A step that drafts yields `accepted` of them, so it counts for that part; what prompts add to it counts whole.
        """
        if not prefill_tokens:
            return self.step_s(0, decoding, resident_tokens) / self.accepted
        held = resident_tokens - prefill_tokens
        prefill_tokens = max(1.0, prefill_tokens * self.computed_share)
        resident_tokens = held + prefill_tokens
        whole = self.step_s(prefill_tokens, decoding, resident_tokens)
        if self.accepted == 1 or not decoding:
            return whole
        return whole - self.step_s(0, decoding, held) * (1 - 1 / self.accepted)

    def step_s(self, prefill_tokens: float, decoding: float, resident_tokens: float) -> float:
        """Seconds of the step itself, however many tokens come out of it."""
        if self.given_s is not None:
            return self.given_s
        return self.parts(prefill_tokens, decoding, resident_tokens).total_s

    def parts(self, prefill_tokens: float, decoding: float, resident_tokens: float) -> StepParts:
        """What the step takes, part by part. Pipeline stages work on as many shares of the batch at a time;
        a prompt alone goes through one after the other."""
        work = self.work
        sequences = decoding / min(self.stages, max(1, decoding))
        fed = prefill_tokens / (self.stages if decoding else 1)
        tried = sequences * (1 + self.drafted)
        flop = (tried + fed) * work.body_flop + (tried + (fed > 0)) * work.head_flop
        held = max(resident_tokens - prefill_tokens, 0) / decoding if decoding else 0.0
        cache_s, attention_s = self.attending_s(sequences, held)
        if fed:
            attention_s += fed * work.prefill_attention(self.attended) / self.attention_flop_per_s
        weights = work.weights_read(tried + fed) + self.drafted * work.draft_bytes
        return StepParts(
            weights / self.weight_bytes_per_s,
            flop / self.flop_per_s,
            cache_s,
            attention_s,
            self._reducing_s(tried + fed),
            self.overhead_s,
        )

    def attending_s(self, sequences: float, held: float) -> tuple[float, float]:
        """Seconds in which attention reads the cache, and computes, for so many sequences of `held` tokens each."""
        read = sequences * self.work.cache_read(held)
        flop = sequences * (1 + self.drafted) * self.work.decode_attention(held)
        return read / self.cache_bytes_per_s, flop / self.attention_flop_per_s

    def _reducing_s(self, tokens: float) -> float:
        """Seconds of the all-reduces of a step, and of handing it from stage to stage."""
        work = self.work
        each = self.latency_s + tokens * work.reduced_bytes * self.reduced_s_per_byte
        return work.collectives * each + (self.stages - 1) * STAGE_S


def remembered(step: StepTime) -> Callable[[float, float, float], float]:
    """The same step time for one run of many steps: what does not hang on the tokens held is kept for each number of
    decoding sequences."""
    if step.given_s is not None:
        return step
    kept: dict[float, tuple[float, float]] = {}

    def seconds(prefill_tokens: float, decoding: float, resident_tokens: float) -> float:
        if prefill_tokens or not decoding:
            return step(prefill_tokens, decoding, resident_tokens)
        known = kept.get(decoding)
        if known is None:
            parts = step.parts(0, decoding, 0)
            fixed_s = max(parts.weights_s, parts.matrices_s) + parts.reducing_s + parts.overhead_s
            known = kept[decoding] = fixed_s, decoding / min(step.stages, decoding)
        fixed_s, sequences = known
        return (fixed_s + max(step.attending_s(sequences, resident_tokens / decoding))) / step.accepted

    return seconds


def step_time(setting: Setting, attended: float) -> StepTime | None:
    """The step time of a plan, for prompts whose tokens attend to `attended` others on average; None where no rate of
    the device is known or nothing of the model's weights."""
    plan, gpu, found = setting.plan, setting.gpu, setting.efficiency
    peak = math_rate(gpu, setting.weight_dtype)
    if peak is None or not setting.weight_bytes:
        return None
    latency, per_byte = collective_s(gpu, plan.tp)
    drafted = setting.speculative_tokens
    return StepTime(
        work=work(setting),
        weight_bytes_per_s=gpu.bandwidth_bytes_per_s * found.weights.value,
        cache_bytes_per_s=gpu.bandwidth_bytes_per_s * found.cache.value,
        flop_per_s=peak[0] * found.compute.value,
        # Attention multiplies activations, in 16 bits whatever the weights are stored in.
        attention_flop_per_s=math_rate(gpu, setting.model.dtype)[0] * found.attention.value,
        overhead_s=found.overhead_s.value,
        latency_s=latency,
        reduced_s_per_byte=per_byte,
        stages=plan.pp,
        attended=attended,
        drafted=drafted,
        accepted=1.0 if plan.step_s else accepted_tokens(plan.acceptance_rate or 0.0, drafted),
        given_s=plan.step_s,
    )


def accepted_tokens(rate: float, drafted: int) -> float:
    """Tokens that come out of a step which tries `drafted` more, each accepted with probability `rate` if those before
    it were: (1 - a^(k + 1)) / (1 - a).

    Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023, equation 1.

    >>> accepted_tokens(0.8, 3), accepted_tokens(1.0, 3), accepted_tokens(0.0, 3)
    (2.952, 4.0, 1.0)
    """
    return round(sum(rate**power for power in range(drafted + 1)), 12)


def work(setting: Setting) -> Work:
    """What the steps of a plan read and compute. Layers, weights and heads are divided by tp, the stages of a pipeline
    follow each other, so that a token meets all of them."""
    model, tp = setting.model, setting.plan.tp
    shape = model.shape
    total = model.parameters or max(1, setting.weight_bytes // 2)
    inputs, experts = model.input_embedding_parameters or 0, model.expert_parameters or 0
    head = min(shape.vocab_size * shape.hidden_size, total - inputs - experts) if shape else 0
    share = _expert_share(setting)
    body = total - inputs - head - experts * (1 - share)
    layers = layer_total(model)

    bytes_of = _bytes_of(setting, total, inputs)
    read, expert_bytes = bytes_of(total - inputs - experts, False), bytes_of(experts, True)
    drafts = cache.draft_group(setting) if setting.speculative_tokens else None
    drafted = drafts.layers if drafts else 0
    draft_bytes = bytes_of(head, False) + drafted * ((read - bytes_of(head, False)) + expert_bytes * share) / layers
    return Work(
        weight_bytes=read / tp,
        expert_bytes=expert_bytes / tp,
        expert_share=share,
        reads=_merged(_reads(setting)),
        state_bytes=_state_bytes(setting),
        body_flop=2 * body / tp,
        head_flop=2 * head / tp,
        attention=_merged(_attention(setting, _decode_dims)),
        prompt_attention=_merged(_attention(setting, _prefill_dims)),
        draft_bytes=draft_bytes / tp if drafted else 0.0,
        collectives=collectives_per_layer(model.model_type) * layers if tp > 1 else 0,
        reduced_bytes=ACTIVATION_BYTES * (shape.hidden_size if shape else 0),
    )


def _expert_share(setting: Setting) -> float:
    """Share of the routed experts that one token passes; all of them where it is not known."""
    model = setting.model
    if not model.num_experts or model.shape is None or not model.shape.num_experts_per_tok:
        return 1.0
    return min(1.0, model.shape.num_experts_per_tok / model.num_experts)


def _bytes_of(setting: Setting, total: int, looked_up: int):
    """Bytes of some of the parameters that steps read, by what the whole model weighs: those a quantised checkpoint
    spares take 16 bits, tables that are looked up among them, and the others share the rest evenly, experts alone where
    only these are quantised."""
    model, size = setting.model, _read_size(setting, total)
    experts, spared = model.expert_parameters or 0, model.unquantized_parameters or 0
    if model.shape and model.shape.quantized_experts and not setting.plan.weight_dtype and experts:
        spared = total - experts
    if 2 * total <= size or spared >= total:
        return lambda parameters, routed: size * parameters / total
    narrow = max(0.0, size - 2 * spared) / (total - spared)
    kept = spared - looked_up if spared >= looked_up else spared
    share = min(1.0, kept / (total - looked_up - experts))

    def bytes_of(parameters: int, routed: bool) -> float:
        """Parameters that are read and not routed hold all that is spared but for the tables."""
        return narrow * parameters if routed else parameters * (2 * share + narrow * (1 - share))

    return bytes_of


def _read_size(setting: Setting, total: int) -> float:
    """Bytes of the weights that steps may read: without an encoder, which runs once for a request, and without layers
    for multi-token prediction, which are counted as a draft."""
    plan, model, size = setting.plan, setting.model, setting.weight_bytes
    if plan.weights_gib is not None:
        return size
    if loads_all(plan, model):
        size = size * model.loaded_weight_bytes / model.weight_bytes
    if not model.multimodal or model.parameters is None:
        return size
    return min(size, weight_bytes_at(plan.weight_dtype or model.dtype, total, model.unquantized_parameters or 0))


def _reads(setting: Setting) -> list[Reach]:
    """What decoding reads of the cache on each device, over all stages; draft layers once for each drafted token."""
    found = []
    for group, layers in _layers(setting, setting.speculative_tokens):
        for store in cache.stores(group, setting):
            if store.kind == "state":
                continue
            own = setting.plan.dcp if store.kind == "growing" else 1
            limit = store.window or math.inf
            if group.index_topk and store.part != "index":
                limit = min(limit, group.index_topk * store.ratio)
            found.append(Reach(limit, layers * store.bits / 8 / store.ratio / own))
    return found


def _state_bytes(setting: Setting) -> float:
    """States are read and written whole in each step."""
    return sum(
        2 * layers * store.bits / 8
        for group, layers in _layers(setting, setting.speculative_tokens)
        for store in cache.stores(group, setting)
        if store.kind == "state"
    )


def _layers(setting: Setting, drafts: int) -> list[tuple[LayerGroup, int]]:
    """Every kind of layer with its number over all stages; draft layers so many times."""
    found = [(group, sum(stages)) for group, stages in cache.staged(setting)]
    if cache.draft_group(setting) is not None:
        group, layers = found.pop()
        found += [(group, layers * drafts)] if drafts else []
    return found


def _attention(setting: Setting, dims) -> list[Reach]:
    """FLOP on one device that a token spends on each token it attends to: 2 for each element of a key and of a value,
    in every query head."""
    heads = setting.model.num_attention_heads or 0
    found = []
    # A draft layer goes over each token once; the target goes over those that were drafted as well.
    for group, layers in _layers(setting, min(1, setting.speculative_tokens)):
        if group.kind not in ATTENTION_KINDS and group.kind not in ("mla", "compressed"):
            continue
        each, ratio = 2 * layers * heads * dims(setting, group) / setting.plan.tp, group.compress_ratio
        if group.window:
            found.append(Reach(group.window, each))
        if ratio or not group.window:
            ratio = max(1, ratio)
            found.append(Reach(group.index_topk * ratio or math.inf, each / ratio))
    return found


def _decode_dims(_setting: Setting, group: LayerGroup) -> int:
    """Elements of key and value that a query head meets: of MLA the latent, once as a key and once as a value."""
    if group.kind in ATTENTION_KINDS:
        return group.head_dim + group.value_head_dim
    return 2 * group.head_dim - ROPE_DIM


def _prefill_dims(setting: Setting, group: LayerGroup) -> int:
    """The same in a prefill, for which MLA unpacks its latents into keys and values of each head."""
    unpacked = setting.model.shape.mla_head_dims if group.kind == "mla" and setting.model.shape else 0
    return unpacked or _decode_dims(setting, group)


def _merged(reaches: list[Reach]) -> tuple[Reach, ...]:
    """Equal limits together."""
    sums: dict[float, float] = {}
    for reach in reaches:
        sums[reach.limit] = sums.get(reach.limit, 0.0) + reach.per_token
    return tuple(Reach(limit, per_token) for limit, per_token in sums.items())
