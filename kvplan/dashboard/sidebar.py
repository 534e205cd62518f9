"""The plan behind the sidebar: the only two functions that translate between a plan and widgets.

A plan may leave a field open (None); a widget cannot. It then shows the automatic value, and a widget at its automatic
value leaves the field open and stays out of the address. So before any widget is drawn, each run reads the plan out of
the widgets, works out what is automatic now, and puts the widgets' values in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import streamlit as st
from pydantic import ValidationError

from kvplan import catalog
from kvplan.dashboard import address, history
from kvplan.dashboard.history import History
from kvplan.dashboard.inputs import AUTOMATIC, BOUNDS, STEPS, TEXTS, WORD_NONE, decimals
from kvplan.links import compared, decode_comparison, is_of_another, others_query, short_query
from kvplan.plan import DEFAULTS, FROM_GPU, FROM_MODEL, Plan
from kvplan.recorded import Comparison
from kvplan.report import evaluate
from kvplan.specs import problems

CUSTOM = "custom"
REMEMBERED = 8
"""Automatic values kept of each field: with a key held down, the browser may still send one of the last few."""


@dataclass
class Session:
    """What the sidebar knows from one run to the next: the plan, those it is compared with and whether a link brought
    them to a page that does not show them, what was dropped from the link or the file, what the link recorded, and what
    was wrong with the last input. `former` are the plans of addresses the browser has overwritten."""

    plan: Plan
    notes: list[str]
    others: list[Plan] = field(default_factory=list)
    others_unseen: bool = False
    origin: str = "link"
    recorded: Comparison | None = None
    history: History | None = None
    wrong: list[str] = field(default_factory=list)
    seeded: dict[str, list] = field(default_factory=dict)
    former: dict[str, list[Plan]] = field(default_factory=dict)
    widest: dict[str, float] = field(default_factory=dict)
    ready: str = CUSTOM


def current_plan(comparing: bool = False) -> Plan:
    """The plan of this run, with the widgets' values and the address made to match it. Call it before any widget.
    `comparing`: whether the page shows the other plans too; its address then carries them."""
    session, going_back = st.session_state.get("session"), address.is_going_back()
    if session is None or going_back:
        session = _opened(session)
        before, moved = None, True
    else:
        before = [session.plan, *session.others]
        moved = _read(session)
    session.history = history.followed(session.history or history.started(session.plan), session.plan)
    session.others_unseen &= not comparing
    automatic = automatic_values(session.plan)
    _seed(session, automatic, moved)
    query = address.query()
    wanted = short_query(session.plan) | (others_query(session.plan, session.others) if comparing else {})
    if moved or _is_stale(address.flat(query), wanted):
        if before is not None and address.flat(query) != wanted:
            # The browser has overwritten its entry with what was moved; Back to it is to the plans before.
            session.former[str(query)] = before
        address.replace(wanted)
    return session.plan


def compare_with(others: Sequence[Plan], notes: Sequence[str] = (), origin: str = "link") -> None:
    """Make these the plans that the current one is compared with, in a run of its own. `notes`: what was dropped from
    the link or file they came from."""
    session = st.session_state["session"]
    session.others, session.notes, session.origin = [_normal(plan) for plan in others], [*notes], origin
    st.rerun()


def open_plan(
    plan: Plan, page: str | None = None, notes: Sequence[str] = (), others: Sequence[Plan] | None = None
) -> None:
    """Make this the plan, in a run of its own; on another page where its file is given. `notes`: what was dropped from
    the file it was read from; `others`: the plans beside it from now on, None for those there are."""
    st.session_state["next_plan"] = plan
    st.session_state["next_notes"] = [*notes]
    session = st.session_state["session"]
    session.others_unseen = bool(others)
    if others is not None:
        session.others = [_normal(other) for other in others]
    if page is not None:
        address.switch_page(page, short_query(_normal(plan)))
    st.rerun()


def automatic_values(plan: Plan) -> dict:
    """What each field would be if the plan left it open, everything else as it is, as its widget shows it."""
    whole = catalog.concrete(catalog.resolve(plan))
    return {
        name: _automatic_value(plan, name, whole) if name in AUTOMATIC else getattr(DEFAULTS, name)
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


def _opened(session: Session | None) -> Session:
    """The session a link or the browser's Back opens."""
    query = address.query()
    before = session.former.pop(str(query), None) if session else None
    plans, notes = (before, []) if before else decode_comparison(query)
    plan, *others = map(_normal, plans)
    recorded = None if before else compared(query)
    opened = Session(plan=plan, notes=notes, others=others, others_unseen=bool(others), recorded=recorded)
    if session is not None:
        opened.others = others or session.others
        opened.former, opened.widest, opened.history = session.former, session.widest, session.history
    return opened


def _is_stale(query: dict[str, str], wanted: dict[str, str]) -> bool:
    """Whether an address has what belongs to no plan, or the other plans otherwise than wanted. What widgets are bound
    to is left to the browser."""
    return bool(set(query) - set(wanted)) or any(
        query.get(name) != text for name, text in wanted.items() if is_of_another(name)
    )


def _read(session: Session) -> bool:
    """Take the plan out of the widgets; whether fields moved that the user did not touch. What was dropped from the
    link is said until the plan changes."""
    session.wrong = []
    if chosen := st.session_state.pop("next_plan", None):
        session.plan, session.notes = _normal(chosen), st.session_state.pop("next_notes", [])
        session.origin, session.recorded = "file", None
        return True
    before, query = session.plan, address.query()
    values = {name: st.session_state.get(name, session.seeded[name][-1]) for name in Plan.model_fields}
    plan, session.wrong = from_widgets(values, session.seeded, before, set(query))
    session.plan = _normal(plan)
    if session.plan != before:
        session.notes, session.recorded, session.others_unseen = [], None, False
    return (session.plan.model, session.plan.gpu) != (before.model, before.gpu)


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


def _automatic_value(plan: Plan, name: str, whole: dict | None = None):
    """What a field would be if the plan left it open; `whole` is the plan with nothing left open, where it is at hand,
    and has that value already for each field that the plan does leave open."""
    opened = plan.model_copy(update={name: getattr(DEFAULTS, name)})
    if name == "batch":
        return evaluate(opened).batching.batch
    if name == "block_size":
        return evaluate(opened).engine.block_size
    if whole is None or not _is_open(name, getattr(plan, name)):
        whole = catalog.concrete(catalog.resolve(opened))
    value = whole[name]
    return round(value, decimals(name)) if name in STEPS and value is not None else value


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
    matching = next((spec.id for spec in ready_plans().values() if _normal(spec.plan) == session.plan), None)
    session.ready = matching or session.ready
    st.session_state["ready_plan"] = session.ready
    st.session_state["session"] = session
    st.session_state["modified"] = matching is None and session.ready != CUSTOM


def _is_open(name: str, value) -> bool:
    return value == getattr(DEFAULTS, name)


def _same(name: str, one, other) -> bool:
    """Whether two values are one to the widget: equal, or within half a step."""
    if name in STEPS and one is not None and other is not None:
        return abs(one - other) < STEPS[name] / 2
    return one == other


def ready_plans() -> dict:
    return catalog.library("plan").specs
