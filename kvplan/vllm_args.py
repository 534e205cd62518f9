"""A vLLM command line -> fields of a plan, with a word on every argument that is none.

Values of arguments that are no fields are never repeated: some of them are secrets.
Source: vLLM 0.32, utils/argparse_utils.py (spellings, human-readable numbers) and config/speculative.py (methods).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from kvplan import vllm_arguments as known
from kvplan.checkpoints import is_wide, stated_width
from kvplan.plan import from_text
from kvplan.specs import ModelSpec, parsed_json, require_one_of, shorten, shown
from kvplan.units import DTYPES, count

OPTION = "--vllm-args"
FLAG = re.compile(r"--?[A-Za-z]")
"""How an argument begins; a negative number is a value."""
HUMAN_READABLE = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")
NOT_GIVEN = ("None", "")
"""Values that leave an argument at its default."""
AUTO_LENGTH = ("auto", "-1")
METHODS = {"ngram": "ngram", "ngram_gpu": "ngram", "suffix": "suffix", "mtp": "mtp", "eagle3": "eagle3"}
DTYPE_NAMES = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32"}


@dataclass(frozen=True)
class VllmArgs:
    """What a command line says: the `model` it names, `fields` of a plan as text, and `quantization` and `dtype`, whose
    meaning hangs on the model. `fits_context`: it asks for the longest context that fits. Arguments as they were
    written: `ignored` take no GPU memory, `not_modelled` change it, with what is counted instead, `unknown` are others.
    """

    model: str | None
    fields: dict[str, str]
    quantization: str | None
    dtype: str | None
    fits_context: bool
    ignored: tuple[str, ...]
    not_modelled: dict[str, str]
    unknown: tuple[str, ...]


class _Given(NamedTuple):
    """One argument: as it was written, its name, and its value as far as it has one; `key` of an object's part."""

    written: str
    name: str
    value: str | None
    key: str = ""


def read_vllm_args(text: str) -> VllmArgs:
    """The arguments of `vllm serve ...`, of `python -m vllm.entrypoints.openai.api_server ...`, or alone.

    Of an argument given twice the last counts. Raises ValueError, one line with the argument, the rule and the value.

    >>> read_vllm_args("vllm serve Qwen/Qwen3-32B -tp 4 --max-model-len 32K --port 8000").fields
    {'tp': '4', 'context': '32768'}
    """
    given, words = _given(_tokens(text))
    latest = {each.name: each for each in given if not each.key}
    values = {name: each for name, each in latest.items() if each.value is not None}
    fields = {known.FIELDS[name]: _field(each) for name, each in values.items() if name in known.FIELDS}
    fits_context = fields.get("context") == "auto"
    speculation, other_method = _speculation(given)
    dtype = _value(values, "dtype")
    if dtype is not None:
        require_one_of("--dtype", dtype, ("auto", *DTYPE_NAMES))
    return VllmArgs(
        model=_model(_value(values, "model"), words),
        fields={name: value for name, value in fields.items() if name != "context" or not fits_context} | speculation,
        quantization=_value(values, "quantization"),
        dtype=None if dtype is None else DTYPE_NAMES.get(dtype),
        fits_context=fits_context,
        ignored=_written(each for each in given if _is_ignored(each.name)),
        not_modelled={e.written: known.NOT_MODELLED[e.name] for e in given if e.name in known.NOT_MODELLED}
        | other_method,
        unknown=_written(each for each in given if not _is_known(each.name)),
    )


def fields_for(args: VllmArgs, model: ModelSpec) -> tuple[dict[str, str], list[str]]:
    """The fields of a plan once the model is known, and what has to be said of them."""
    fields, notes = dict(args.fields), []
    width = stated_width(args.model, args.quantization, model)
    if width is None and args.quantization is not None and is_wide(model):
        notes.append(_unmodelled("--quantization", "how wide its weights are is not known; set weight_dtype"))
    if width is None and _recast(args, model):
        width = args.dtype
    if width is not None:
        fields["weight_dtype"] = width
    if args.dtype == "fp32" and fields.get("kv_dtype", "auto") == "auto":
        fields["kv_dtype"] = "fp32"
    if "context" not in fields:
        fields["context"] = str(model.max_position_embeddings)
        if not args.fits_context:
            notes.append(f"--max-model-len: not given, so what the model has, {count(model.max_position_embeddings)}")
    if model.num_experts and int(fields.get("dp", 1)) > 1:
        shared = "vLLM spreads experts over the ranks of all replicas; each is counted with all of them"
        notes.append(_unmodelled("--data-parallel-size", shared))
    return fields, notes


def remarks(args: VllmArgs) -> list[str]:
    """What is not taken from a command line, one sentence each."""
    ignored = [f"ignored, as they take no GPU memory: {', '.join(args.ignored)}"] if args.ignored else []
    unknown = [f"not known: {', '.join(args.unknown)}"] if args.unknown else []
    return [*ignored, *(_unmodelled(*item) for item in args.not_modelled.items()), *unknown]


def human_readable_int(text: str) -> int:
    """A whole number as vLLM reads it: k, m, g, t are powers of 1,000 and may follow a decimal; K, M, G, T are powers
    of 1,024 and may not. Raises ValueError for anything else.

    >>> human_readable_int("25.6k"), human_readable_int("32K"), human_readable_int("32768")
    (25600, 32768, 32768)
    """
    match = HUMAN_READABLE.fullmatch(text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    power = "kmgt".index(suffix.lower()) + 1
    return int(float(number) * 1000**power) if suffix.islower() else int(number) * 1024**power


def _unmodelled(written: str, counted: str) -> str:
    return f"not modelled: {written}: {counted}"


def _tokens(text: str) -> list[str]:
    """The words of a command behind the program's own."""
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise ValueError(f"{OPTION}: cannot be split into words, {error}") from None
    before = list(takewhile(lambda word: not word.startswith("--"), words))
    starts = [place for place, word in enumerate(before) if word == "serve" or word.startswith("vllm.entrypoints")]
    return words[starts[-1] + 1 :] if starts else words


def _given(tokens: list[str]) -> tuple[list[_Given], list[str]]:
    """The arguments in order, and the words that belong to none."""
    given, words, place = [], [], 0
    while place < len(tokens):
        token, place = tokens[place], place + 1
        if not FLAG.match(token):
            words.append(token)
            continue
        written, equals, value = token.partition("=")
        name, _, key = _name(written).partition(".")
        follows = [] if equals else list(takewhile(lambda word: not FLAG.match(word), tokens[place:]))
        taken = follows[: _most_words(name)]
        place += len(taken)
        given.append(_read(shorten(written), name, key, value if equals else " ".join(taken) if taken else None))
    return given, words


def _name(written: str) -> str:
    """An argument's name in vLLM's spelling, with what follows a dot as it is."""
    head, dot, rest = written.lstrip("-").partition(".")
    if not written.startswith("--"):
        head = known.SHORT.get(head, known.SHORT["O"] if re.fullmatch(r"O\d", head) else head)
    return head.replace("-", "_") + dot + rest


def _most_words(name: str) -> int | None:
    """How many words an argument takes at most; None for any number, as of those that are not known."""
    if name in known.SWITCHES or name.removeprefix("no_") in known.SWITCHES:
        return 0
    return 1 if _is_known(name) and name not in known.LISTS else None


def _read(written: str, name: str, key: str, value: str | None) -> _Given:
    """An argument with its value; a switch of a plan's field is true or false. Raises ValueError where a value is
    missing, or given to a switch."""
    switch = name.removeprefix("no_")
    if switch in known.SWITCHES and switch in known.FIELDS:
        if value is not None:
            raise ValueError(f"{written}: takes no value, got {shown(value)}")
        return _Given(written, switch, "true" if switch == name else "false")
    if value is None and (name in known.FIELDS or name in known.OF_THE_MODEL or name in known.SPECULATIVE):
        raise ValueError(f"{written}: needs a value")
    return _Given(written, name, None if value in NOT_GIVEN else value, key)


def _field(given: _Given) -> str:
    """The text of a plan's field. Raises ValueError where no plan can have it."""
    value = given.value.strip()
    if given.name == "max_model_len" and value.lower() in AUTO_LENGTH:
        return "auto"
    if given.name in known.HUMAN_READABLE:
        value = _whole(given)
    if given.name == "kv_cache_dtype" and value == "fp8_inc":
        value = "fp8"
    _, dropped = from_text({known.FIELDS[given.name]: value})
    for why in dropped.values():
        raise ValueError(f"{given.written}: {why}")
    return value


def _whole(given: _Given) -> str:
    try:
        return str(human_readable_int(given.value))
    except (ValueError, OverflowError):
        rule = "must be a whole number, or end in k, m, g, t (powers of 1,000) or in K, M, G, T (1,024, no decimals)"
        raise ValueError(f"{given.written}: {rule}, got {shown(given.value)}") from None


def _value(values: dict[str, _Given], name: str) -> str | None:
    return values[name].value.strip() if name in values else None


def _model(named: str | None, words: list[str]) -> str | None:
    """The model of --model or of the one word that belongs to no argument."""
    models = list(dict.fromkeys([named, *words] if named else words))
    if len(models) > 1:
        raise ValueError(f"{OPTION}: one model can be named, got {len(models)} words that belong to no argument")
    return models[0] if models else None


def _speculation(given: list[_Given]) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of speculative decoding; else, where its method is none of a plan's, what is counted instead."""
    config, written = {}, ""
    for each in given:
        if each.value is not None and each.name in known.SPECULATIVE:
            config |= _settings(each)
            written = each.written
    if not config:
        return {}, {}
    method, tokens = _method(config), config.get("num_speculative_tokens")
    if method is None:
        return {}, {written: f"only {', '.join(dict.fromkeys(METHODS.values()))} are counted"}
    if tokens is None:
        raise ValueError(f"{written}: needs num_speculative_tokens")
    plan, dropped = from_text({"spec_tokens": tokens})
    if dropped or not plan.spec_tokens:
        raise ValueError(f"{written}: num_speculative_tokens must be from 1 to 64, got {shown(tokens)}")
    return {"spec_method": method, "spec_tokens": str(plan.spec_tokens)}, {}


def _settings(given: _Given) -> dict:
    """The part of a speculative_config that an argument gives."""
    if key := known.SPECULATIVE[given.name]:
        return {key: given.value}
    found = parsed_json(given.value)
    if given.key:
        return {given.key.replace("-", "_"): given.value if found is None else found}
    if not isinstance(found, dict):
        raise ValueError(f"{given.written}: must be a JSON object, got {shown(given.value)}")
    return {key.replace("-", "_"): value for key, value in found.items()}


def _method(config: dict) -> str | None:
    """The method as a plan names it, told from the drafting model where it is not given; None where a plan has none."""
    method, model = (str(config.get(key) or "").lower() for key in ("method", "model"))
    if not method:
        method = "eagle3" if "eagle3" in model else model.strip("[]")
    return "mtp" if method.endswith("_mtp") else METHODS.get(method)


def _recast(args: VllmArgs, model: ModelSpec) -> bool:
    """Whether a dtype makes weights that are not quantised wider or narrower than they were released."""
    return args.dtype is not None and model.weight_dtype is None and DTYPES[args.dtype].bits != DTYPES[model.dtype].bits


def _is_ignored(name: str) -> bool:
    off = name.removeprefix("no_") in known.SWITCHES and name != name.removeprefix("no_")
    return name in known.IGNORED or (off and name not in known.NOT_MODELLED)


def _is_known(name: str) -> bool:
    own = (known.FIELDS, known.OF_THE_MODEL, known.SPECULATIVE, known.NOT_MODELLED)
    return _is_ignored(name) or any(name in names for names in own)


def _written(given: Iterator[_Given]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.written for each in given))
