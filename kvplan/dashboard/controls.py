"""The controls of the sidebar: one widget for each field of the plan, bound to the address, in four groups."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvplan import catalog
from kvplan.breakdown import layer_summary
from kvplan.dashboard import config_reader, model_finder, plan_file, trace_reader, undo
from kvplan.dashboard.frame import once_opened
from kvplan.dashboard.inputs import BOUNDS, CHOICES, HELP, STEPS, VIEW_HELP, WORD_NONE, decimals
from kvplan.dashboard.sidebar import CUSTOM, Session, ready_plans
from kvplan.lengths import mean_prompt
from kvplan.markdown import escape
from kvplan.plan import DEFAULTS, Plan
from kvplan.report import Report
from kvplan.texts import MAX_TEXT
from kvplan.units import gb_per_s, gib, mean

ALWAYS_DRAWN = (
    "model", "layers", "kv_heads", "gpu", "gpu_memory_gib", "tp", "context", "kv_dtype", "block_size", "workload",
    "batch",
)  # fmt: skip
"""Fields whose control is not folded away."""


def draw(plan: Plan, report: Report) -> None:
    """Every input, in four groups; what a planner seldom moves is folded away at the end of its group."""
    # Containers of their own: a row that comes and goes must not shift the widgets below it, or the browser takes them
    # for new ones and no longer writes them into the address.
    with st.container(gap="xsmall"):
        _draw_ready_plan()
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="plans"):
            undo.draw()
            # As wide as its button, so that it stands on the same line.
            with st.container(width="content"):
                plan_file.draw(plan)
    with st.container(gap="xsmall"):
        _draw_model(report)
        _draw_hardware(report)
        _draw_serving()
        _draw_workload(plan, report)
    for line in [line for kind in catalog.SPECS for line in catalog.library(kind).broken]:
        st.warning(f"Preset left out: {escape(line)}", icon=":material/broken_image:")


def _draw_ready_plan() -> None:
    names = {spec.id: spec.name for spec in ready_plans().values()} | {CUSTOM: "Custom plan"}
    options = [name for name in names if name != CUSTOM or st.session_state["ready_plan"] == CUSTOM]
    st.selectbox(
        "Ready plan",
        options,
        format_func=names.get,
        key="ready_plan",
        label_visibility="collapsed",
        help=VIEW_HELP["ready_plan"],
        on_change=_choose_ready_plan,
    )
    # The row is always there: nothing may move below the pointer with the first change.
    with st.container(horizontal=True, vertical_alignment="center", gap="small", height=28, border=False):
        if st.session_state["modified"]:
            st.badge("modified", color="orange")
            st.button(
                "Reset", type="tertiary", key="reset", on_click=_choose_ready_plan, help="Back to the ready plan."
            )
        else:
            st.badge("from a link" if st.session_state["ready_plan"] == CUSTOM else "unchanged", color="gray")
        # The box's own label is not shown, and with it its help.
        st.markdown("&nbsp;", help=VIEW_HELP["ready_plan"], width="content")


def _choose_ready_plan() -> None:
    # Right after a change the browser may still send the name of the custom plan, which is no longer offered.
    chosen = ready_plans().get(st.session_state["ready_plan"])
    if chosen is not None:
        st.session_state["next_plan"] = chosen.plan


def _draw_model(report: Report) -> None:
    _group("Model", HELP["model"])
    read = report.plan.spec is not None
    _select("model", "Model", catalog.presets("model"), label_visibility="collapsed", disabled=read)
    model_finder.draw(report.plan)
    model = report.setting.model
    if model.weight_bytes is None and report.plan.weights_gib is None:
        weights = "weights not known"
    else:
        weights = f"{gib(report.setting.weight_bytes)}{_mark(report, 'layers and heads', 'weight_bytes')}"
    provisional = ", provisional" if model.provisional else ""
    st.caption(f"{escape(model.name)}: {layer_summary(model.groups)}, {weights}{provisional}")
    growing = _default("layers") is not None
    if growing:
        plain = all(group.kind == "full" for group in model.groups)
        _slider("layers", "Layers" if plain else "Full-attention layers")
        _steps("kv_heads", "KV heads" if plain else "Full-attention KV heads")
    if part := _folded("Head dim, weights, config", "more_model"):
        with part:
            if growing:
                _number("head_dim", "Head dim, elements")
            _number("weights_gib", "Weights, GiB in all")
            _select("weight_dtype", "Weight dtype", CHOICES["weight_dtype"])
            config_reader.draw(report.plan)
            _text("groups", "Layers as text")
            _text("spec", "Model in one word")


def _draw_hardware(report: Report) -> None:
    _group("Hardware", HELP["gpu"])
    _select("gpu", "GPU", catalog.presets("gpu"), label_visibility="collapsed")
    gpu = report.setting.gpu
    bandwidth = gb_per_s(gpu.bandwidth_bytes_per_s)
    st.caption(f"{gpu.name}: {gib(gpu.total_bytes)}, {bandwidth}{_mark(report, 'total_bytes')}")
    _slider("gpu_memory_gib", "GPU memory, GiB")
    _segments("tp", "Tensor parallel", report.capacity.min_tp)
    if part := _folded("Utilization, pp, given pool", "more_hardware"):
        with part:
            _number("pp", "Pipeline parallel")
            _number("dp", "Data parallel, replicas")
            _number("dcp", "Decode context parallel")
            _toggle("enable_expert_parallel", "Expert parallel")
            _slider("gpu_memory_utilization", "GPU memory utilization")
            _number("allocator_overhead_fraction", "Allocator overhead, of the pool")
            _number("kv_cache_memory_bytes", "KV pool as given, bytes/device", placeholder="none")
            _number("mem_fraction_static", "SGLang's mem_fraction_static", placeholder="none: vLLM's budget")
    _draw_startup(report)
    if part := _folded("Rates reached", "more_rates"):
        with part:
            _slider("bandwidth_efficiency", f"Of the bandwidth{_mark(report, 'bandwidth_efficiency')}")
            _slider("compute_efficiency", f"Of the FLOP/s{_mark(report, 'compute_efficiency')}")
            _number("step_overhead_s", f"Host, seconds a step{_mark(report, 'step_overhead_s')}")


def _draw_startup(report: Report) -> None:
    if part := _folded("What start-up takes", "more_startup"):
        with part:
            mark = _mark(report, "workspace_bytes")
            _number("activation_gib", f"Activations, GiB/device{_mark(report, 'activation_bytes')}")
            _number("non_torch_gib", f"Non-torch, GiB/device{mark}", placeholder="in workspace")
            _number("cuda_graph_gib", f"Graphs, GiB/device{mark}", placeholder="in workspace")
            _number("workspace_gib", f"Both together, GiB/device{mark}")
            _toggle("enforce_eager", "Without CUDA graphs")
            _select("engine_version", "vLLM version of these estimates", CHOICES["engine_version"])


def _draw_serving() -> None:
    _group("Serving")
    _steps("context", "Context, tokens")
    _segments("kv_dtype", "KV cache dtype")
    _steps("block_size", "Block size, tokens")
    if part := _folded("Admission, engine limits", "more_serving"):
        with part:
            _segments("admission", "Admission")
            _number("max_num_seqs", "max_num_seqs")
            _number("max_tokens", "max_tokens", placeholder="longest output")
            _number("tenant_quota_fraction", "Tenant quota, of the ceiling", placeholder="none")
            _number("shared_prefix_tokens", "Shared prefix, tokens")
            _number("prefix_hit_rate", "Prefix hit rate, of a prompt", placeholder="of the shared prefix")
            _number("max_num_batched_tokens", "max_num_batched_tokens")
            _toggle("async_scheduling", "Async scheduling")
            _toggle("enable_prefix_caching", "Prefix caching")
            _toggle("disable_hybrid_kv_cache_manager", "Without the hybrid manager")
            _select("spec_method", "Speculative method", CHOICES["spec_method"])
            _number("spec_tokens", "Speculative tokens")
            _number("acceptance_rate", "Acceptance rate", placeholder="none accepted")
            _segments("usage", "Engine defaults of")
            _select("v_dtype", "Value dtype", CHOICES["v_dtype"])
            _select("mamba_ssm_cache_dtype", "State dtype", CHOICES["mamba_ssm_cache_dtype"])


def _draw_workload(plan: Plan, report: Report) -> None:
    _group("Workload", HELP["workload"])
    _select("workload", "Workload", [*catalog.presets("workload"), "auto"], label_visibility="collapsed")
    lengths = report.setting.lengths
    prompt, output = mean(mean_prompt(lengths)), mean(lengths.mean)
    rate = report.setting.arrival_rate
    traffic = "" if rate is None else f"; {rate:,.2f} requests/s"
    st.caption(f"means: prompt {prompt}, output {output} tokens{traffic}{_mark(report, 'lengths')}")
    trace_reader.draw(plan)
    _slider("batch", "Batch, sequences")
    if part := _folded("Lengths", "more_workload"):
        with part:
            named = plan.workload != "auto" or plan.table is not None
            _number("prompt_mean", "Mean prompt, tokens", disabled=named)
            _number("output_mean", "Mean output, tokens", disabled=named)
            _select("output_dist", "Output family", CHOICES["output_dist"], disabled=named)
            _text("table", "Lengths in one word")
            _number("arrival_rate", "Requests a second", placeholder="not known")
            _number("arrival_cv", "Variation of their gaps", placeholder="not known")
            _number("step_s", "Every step, seconds", placeholder="estimated")
    if part := _folded("Targets, price", "more_targets"):
        with part:
            _number("ttft_s", "TTFT target, seconds")
            _number("tpot_s", "TPOT target, seconds")
            _number("peak_to_mean", "Peak over mean rate")
            _number("spare_replicas", "Spare replicas")
            _number("gpu_hour_usd", "USD per GPU hour")
            _text("price_date", "Price as of")


def _folded(label: str, key: str) -> DeltaGenerator | None:
    """Controls that a planner seldom moves: drawn from when they are first opened, or the plan sets one of them. A
    control that was taken away again would take its field out of the address."""
    part = st.expander(label, type="compact", key=key, on_change="rerun")
    plan = _session().plan
    is_set = any(getattr(plan, name) != value for name, value in DEFAULTS if name not in ALWAYS_DRAWN)
    return once_opened(part, key, already=is_set)


def _group(name: str, help: str | None = None) -> None:
    """A group's name, with the help of its first control where that has no label to carry it."""
    st.space("xxsmall")
    st.markdown(f"##### {name}", help=help)


def _slider(name: str, label: str) -> None:
    least, most = _bounds(name)
    st.slider(label, least, most, _default(name), STEPS.get(name, 1), **_common(name), **_format(name))


def _number(name: str, label: str, **options) -> None:
    least, most = _bounds(name)
    st.number_input(label, least, most, _default(name), STEPS.get(name, 1), **options, **_common(name), **_format(name))


def _bounds(name: str) -> tuple:
    """Least and most of a widget, widened to the automatic value and the plan's own: it refuses to show others."""
    least, most = BOUNDS[name]
    shown = [value for value in (_default(name), st.session_state[name]) if value is not None]
    widest = _session().widest.get(name, most)
    return min((least, *shown)), type(most)(max((widest, *shown)))


def _steps(name: str, label: str) -> None:
    options = sorted({*CHOICES[name], _default(name), st.session_state[name]})
    st.select_slider(label, options, _default(name), **_common(name))


def _segments(name: str, label: str, cure: int | None = None) -> None:
    """A choice of a few; `cure` is a value worth offering beside them."""
    offered = [*_choices(name), _default(name), st.session_state[name], *([cure] if cure else [])]
    options = [*dict.fromkeys(offered)]
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
    return {"format": f"%.{decimals(name)}f"} if name in STEPS else {}


def _default(name: str):
    """What stands for "not in the address": the automatic value, or the plan's default."""
    value = _session().seeded[name][-1]
    return "auto" if name in WORD_NONE and value is None else value


def _session() -> Session:
    return st.session_state["session"]


def _mark(report: Report, *names: str) -> str:
    """The word that says a number was recalled or estimated, where one of these was."""
    marks = dict.fromkeys(report.sources[name].mark for name in names)
    return "".join(f", {mark}" for mark in marks if mark)
