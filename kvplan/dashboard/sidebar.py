"""The sidebar: one widget for each field of the plan, bound to the address, and the only two functions that translate
between a plan and widgets.

A plan may leave a field open (None); a widget cannot. It then shows the automatic value, and a widget at its automatic
value leaves the field open and stays out of the address. So before any widget is drawn, each run reads the plan out of
the widgets, works out what is automatic now, and puts the widgets' values in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st
from pydantic import ValidationError

from kvplan import catalog
from kvplan.breakdown import layer_summary
from kvplan.dashboard import address, config_reader
from kvplan.dashboard.inputs import (
    AUTOMATIC,
    BOUNDS,
    CHOICES,
    FROM_GPU,
    FROM_MODEL,
    HELP,
    STEPS,
    TEXTS,
    WORD_NONE,
)
from kvplan.lengths import mean_prompt
from kvplan.links import decode_link, short_query
from kvplan.plan import DEFAULTS, Plan
from kvplan.report import Report, evaluate
from kvplan.specs import problems
from kvplan.texts import MAX_TEXT
from kvplan.units import gb_per_s, gib, mean

CUSTOM = "custom"
REMEMBERED = 8
"""Automatic values kept of each field: with a key held down, the browser may still send one of the last few."""


@dataclass
class Session:
    """What the sidebar knows from one run to the next: the plan, what was dropped from its link, and what was wrong
    with the last input."""

    plan: Plan
    notes: list[str]
    wrong: list[str] = field(default_factory=list)
    seeded: dict[str, list] = field(default_factory=dict)
    former: dict[str, Plan] = field(default_factory=dict)
    widest: dict[str, float] = field(default_factory=dict)
    ready: str = CUSTOM


def current_plan() -> Plan:
    """The plan of this run, with the widgets' values and the address made to match it. Call it before any widget."""
    session, going_back = st.session_state.get("session"), address.is_going_back()
    if session is None or going_back:
        session = _opened(session)
        moved = True
    else:
        moved = _read(session)
    automatic = automatic_values(session.plan)
    _seed(session, automatic, moved)
    wanted = short_query(session.plan)
    if moved or set(address.query()) - set(wanted):
        address.replace(wanted)
    return session.plan


def automatic_values(plan: Plan) -> dict:
    """What each field would be if the plan left it open, everything else as it is, as its widget shows it."""
    return {
        name: _automatic_value(plan, name) if name in AUTOMATIC else getattr(DEFAULTS, name)
        for name in Plan.model_fields
    }


def to_widgets(plan: Plan, automatic: dict) -> dict:
    """Plan -> what the widgets show: the automatic value where the plan leaves a field open."""
    shown = {}
    for name, value in plan:
        if name in AUTOMATIC and value in (None, "auto"):
            shown[name] = automatic[name]
        elif name in WORD_NONE and value is None:
            shown[name] = "auto"
        elif name in TEXTS:
            shown[name] = value or ""
        else:
            shown[name] = value
    return shown


def from_widgets(values: dict, seeded: dict[str, list], before: Plan, in_address: set[str]) -> tuple[Plan, list[str]]:
    """What the widgets show -> plan: a field is open where its widget stands at the automatic value it was given.

    An automatic value of a few runs ago counts as well while the browser has not put the field into the address. A
    text that cannot be read leaves its field as it was before, with a line that says why.
    """
    fields = {}
    for name, value in values.items():
        given = seeded[name][-1:] if name in in_address or not _is_open(name, getattr(before, name)) else seeded[name]
        is_automatic = name in AUTOMATIC and any(_same(name, value, known) for known in given)
        is_none = (name in WORD_NONE and value == "auto") or (name in TEXTS and not value)
        fields[name] = getattr(DEFAULTS, name) if is_automatic or is_none else value
    if fields["model"] != before.model:
        fields |= dict.fromkeys(FROM_MODEL)
    if fields["gpu"] != before.gpu:
        fields |= dict.fromkeys(FROM_GPU)
    try:
        return Plan(**fields), []
    except ValidationError as error:
        wrong = problems(error)
        kept = {name: getattr(before, name) for name in wrong}
        return Plan(**(fields | kept)), [f"{name}: {rule}" for name, rule in wrong.items()]


def draw(plan: Plan, report: Report) -> None:
    """Every input, in four groups; what a planner seldom moves is folded away at the end of its group."""
    # Containers of their own: a row that comes and goes must not shift the widgets below it, or the browser takes them
    # for new ones and no longer writes them into the address.
    with st.container(gap="xsmall"):
        _draw_ready_plan()
    with st.container(gap="xsmall"):
        _draw_model(report)
        _draw_hardware(report)
        _draw_serving()
        _draw_workload(plan, report)
    for line in [line for kind in catalog.SPECS for line in catalog.library(kind).broken]:
        st.warning(f"Preset left out: `{line.replace('`', chr(39))}`", icon=":material/broken_image:")


def _opened(session: Session | None) -> Session:
    """The session a link or the browser's Back opens."""
    query = address.query()
    before = session.former.pop(str(query), None) if session else None
    plan, notes = (before, []) if before else decode_link(query)
    return Session(plan=_normal(plan), notes=notes, widest=session.widest if session else {}, ready=CUSTOM)


def _read(session: Session) -> bool:
    """Take the plan out of the widgets; whether fields moved that the user did not touch."""
    session.wrong = []
    if chosen := st.session_state.pop("next_plan", None):
        session.plan, session.notes = _normal(chosen), []
        return True
    before, query = session.plan, address.query()
    values = {name: st.session_state.get(name, session.seeded[name][-1]) for name in Plan.model_fields}
    plan, session.wrong = from_widgets(values, session.seeded, before, set(query))
    session.plan = _normal(plan)
    moved = (session.plan.model, session.plan.gpu) != (before.model, before.gpu)
    if moved and short_query(session.plan) != address.flat(query):
        # The browser has overwritten its entry with the new model and the old overrides; Back to it is to the old plan.
        session.former[str(query)] = before
    return moved


def _normal(plan: Plan) -> Plan:
    """The same plan with preset ids as the catalog spells them, and fields at their automatic value left open."""
    ids = {name: catalog.load_preset(getattr(plan, name), name).id for name in ("model", "gpu")}
    if plan.workload != "auto":
        ids["workload"] = catalog.load_preset(plan.workload, "workload").id
    plan = plan.model_copy(update=ids)
    for name in AUTOMATIC:
        value = getattr(plan, name)
        if not _is_open(name, value) and _same(name, value, _automatic_value(plan, name)):
            plan = plan.model_copy(update={name: getattr(DEFAULTS, name)})
    return plan


def _automatic_value(plan: Plan, name: str):
    opened = plan.model_copy(update={name: getattr(DEFAULTS, name)})
    if name == "batch":
        return evaluate(opened).batching.batch
    if name == "block_size":
        return evaluate(opened).engine.block_size
    value = catalog.concrete(catalog.resolve(opened))[name]
    return round(value, _decimals(name)) if name in STEPS else value


def _seed(session: Session, automatic: dict, moved: bool) -> None:
    """Put each widget's value in place. After a move equal values are written too, as their default may have moved."""
    shown = to_widgets(session.plan, automatic)
    for name, value in shown.items():
        known = [past for past in session.seeded.get(name, []) if past != automatic[name]]
        session.seeded[name] = [*known, automatic[name]][-REMEMBERED:]
        if moved or name not in st.session_state or st.session_state[name] != value:
            st.session_state[name] = value
    for name, (_, most) in BOUNDS.items():
        if shown[name] is not None:
            session.widest[name] = max(session.widest.get(name, most), shown[name])
    matching = next((spec.id for spec in _ready_plans().values() if _normal(spec.plan) == session.plan), None)
    session.ready = matching or session.ready
    st.session_state["ready_plan"] = session.ready
    st.session_state["session"] = session
    st.session_state["modified"] = matching is None and session.ready != CUSTOM


def _draw_ready_plan() -> None:
    names = {spec.id: spec.name for spec in _ready_plans().values()} | {CUSTOM: "Custom plan"}
    options = [name for name in names if name != CUSTOM or st.session_state["ready_plan"] == CUSTOM]
    st.selectbox(
        "Ready plan",
        options,
        format_func=names.get,
        key="ready_plan",
        label_visibility="collapsed",
        help="A plan worth opening: it sets all fields at once.",
        on_change=_choose_ready_plan,
    )
    if st.session_state["modified"]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge("modified", color="orange")
            st.button(
                "Reset", type="tertiary", key="reset", on_click=_choose_ready_plan, help="Back to the ready plan."
            )


def _choose_ready_plan() -> None:
    if st.session_state["ready_plan"] != CUSTOM:
        st.session_state["next_plan"] = catalog.load_preset(st.session_state["ready_plan"], "plan")


def _draw_model(report: Report) -> None:
    _group("Model")
    _select("model", "Model", catalog.presets("model"), label_visibility="collapsed")
    model = report.setting.model
    weights = f"{gib(report.setting.weight_bytes)}{_mark(report, 'layers and heads', 'weight_bytes')}"
    st.caption(f"{model.name}: {layer_summary(model.groups)}, {weights}")
    growing = _default("layers") is not None
    if growing:
        plain = all(group.kind == "full" for group in model.groups)
        _slider("layers", "Layers" if plain else "Full-attention layers")
        _steps("kv_heads", "KV heads" if plain else "Full-attention KV heads")
    with st.expander("Head dim, weights, config", type="compact", key="more_model"):
        if growing:
            _number("head_dim", "Head dim, elements")
        _number("weights_gib", "Weights, GiB in all")
        _select("weight_dtype", "Weight dtype", CHOICES["weight_dtype"])
        config_reader.draw(report.plan)
        _text("groups", "Layers as text")
        _text("spec", "Model in one word")


def _draw_hardware(report: Report) -> None:
    _group("Hardware")
    _select("gpu", "GPU", catalog.presets("gpu"), label_visibility="collapsed")
    gpu = report.setting.gpu
    bandwidth = gb_per_s(gpu.bandwidth_bytes_per_s)
    st.caption(f"{gpu.name}: {gib(gpu.total_bytes)}, {bandwidth}{_mark(report, 'total_bytes')}")
    _slider("gpu_memory_gib", "GPU memory, GiB")
    _segments("tp", "Tensor parallel")
    with st.expander("Utilization, activations, pp", type="compact", key="more_hardware"):
        _number("pp", "Pipeline parallel")
        _number("dcp", "Decode context parallel")
        _toggle("enable_expert_parallel", "Expert parallel")
        _slider("gpu_memory_utilization", "GPU memory utilization")
        _number("activation_gib", f"Activations, GiB/device{_mark(report, 'activation_bytes')}")
        _number("workspace_gib", f"Workspace, GiB/device{_mark(report, 'workspace_bytes')}")
        _number("allocator_overhead_fraction", "Allocator overhead, of the pool")
        _number("kv_cache_memory_bytes", "KV pool as given, bytes/device", placeholder="none")


def _draw_serving() -> None:
    _group("Serving")
    _steps("context", "Context, tokens")
    _segments("kv_dtype", "KV cache dtype")
    _steps("block_size", "Block size, tokens")
    with st.expander("Admission, engine limits", type="compact", key="more_serving"):
        _segments("admission", "Admission")
        _number("max_num_seqs", "max_num_seqs")
        _number("tenant_quota_fraction", "Tenant quota, of the ceiling", placeholder="none")
        _number("shared_prefix_tokens", "Shared prefix, tokens")
        _number("max_num_batched_tokens", "max_num_batched_tokens")
        _toggle("async_scheduling", "Async scheduling")
        _toggle("enable_prefix_caching", "Prefix caching")
        _toggle("disable_hybrid_kv_cache_manager", "Without the hybrid manager")
        _select("spec_method", "Speculative method", CHOICES["spec_method"])
        _number("spec_tokens", "Speculative tokens")
        _segments("usage", "Engine defaults of")
        _select("v_dtype", "Value dtype", CHOICES["v_dtype"])
        _select("mamba_ssm_cache_dtype", "State dtype", CHOICES["mamba_ssm_cache_dtype"])


def _draw_workload(plan: Plan, report: Report) -> None:
    _group("Workload")
    _select("workload", "Workload", [*catalog.presets("workload"), "auto"], label_visibility="collapsed")
    lengths = report.setting.lengths
    prompt, output = mean(mean_prompt(lengths)), mean(lengths.mean)
    st.caption(f"means: prompt {prompt}, output {output} tokens{_mark(report, 'lengths')}")
    _slider("batch", "Batch, sequences")
    with st.expander("Lengths", type="compact", key="more_workload"):
        named = plan.workload != "auto" or plan.table is not None
        _number("prompt_mean", "Mean prompt, tokens", disabled=named)
        _number("output_mean", "Mean output, tokens", disabled=named)
        _select("output_dist", "Output family", CHOICES["output_dist"], disabled=named)
        _text("table", "Lengths in one word")


def _group(name: str) -> None:
    st.space("xxsmall")
    st.markdown(f"##### {name}")


def _slider(name: str, label: str) -> None:
    least, most = BOUNDS[name]
    widest = type(most)(_session().widest.get(name, most))
    least = min(least, st.session_state[name])
    st.slider(label, least, widest, _default(name), STEPS.get(name, 1), **_common(name), **_format(name))


def _number(name: str, label: str, **options) -> None:
    least, most = BOUNDS[name]
    st.number_input(label, least, most, _default(name), STEPS.get(name, 1), **options, **_common(name), **_format(name))


def _steps(name: str, label: str) -> None:
    options = sorted({*CHOICES[name], _default(name), st.session_state[name]})
    st.select_slider(label, options, _default(name), **_common(name))


def _segments(name: str, label: str) -> None:
    options = [*dict.fromkeys([*_choices(name), _default(name), st.session_state[name]])]
    if name == "tp":
        options.sort()
    st.segmented_control(label, options, default=_default(name), required=True, width="stretch", **_common(name))


def _choices(name: str) -> tuple:
    """What a selector offers; a checkpoint in fp16 has no use for bf16 beside it."""
    if name == "kv_dtype" and _default(name) == "fp16":
        return tuple("fp16" if value == "bf16" else value for value in CHOICES[name])
    return CHOICES[name]


def _toggle(name: str, label: str) -> None:
    st.toggle(label, _default(name), **_common(name))


def _text(name: str, label: str) -> None:
    st.text_input(label, "", max_chars=MAX_TEXT, placeholder="none", **_common(name))


def _select(name: str, label: str, choices, **options) -> None:
    choices = [*choices] if st.session_state[name] in choices else [*choices, st.session_state[name]]
    st.selectbox(label, choices, index=choices.index(_default(name)), **options, **_common(name))


def _common(name: str) -> dict:
    return {"key": name, "bind": "query-params", "help": HELP[name]}


def _format(name: str) -> dict:
    return {"format": f"%.{_decimals(name)}f"} if name in STEPS else {}


def _default(name: str):
    """What stands for "not in the address": the automatic value, or the plan's default."""
    value = _session().seeded[name][-1]
    return "auto" if name in WORD_NONE and value is None else value


def _session() -> Session:
    return st.session_state["session"]


def _ready_plans() -> dict:
    return catalog.library("plan").specs


def _is_open(name: str, value) -> bool:
    return value == getattr(DEFAULTS, name)


def _decimals(name: str) -> int:
    return len(str(STEPS[name]).partition(".")[2].rstrip("0"))


def _same(name: str, one, other) -> bool:
    """Whether two values are one to the widget: equal, or within half a step."""
    if name in STEPS and one is not None and other is not None:
        return abs(one - other) < STEPS[name] / 2
    return one == other


def _mark(report: Report, *names: str) -> str:
    """The word that says a number was recalled or estimated, where one of these was."""
    marks = dict.fromkeys(report.sources[name].mark for name in names)
    return "".join(f", {mark}" for mark in marks if mark)
