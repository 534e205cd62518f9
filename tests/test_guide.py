"""The Guide's numbers: the answers are the reports', guesses are read or refused, and the arithmetic shown is true."""

import re
from math import floor

import pytest

from kvplan import Plan, evaluate, guide, guide_words, load_preset, presets
from kvplan.guide import QUESTIONS, answers, how_far, read_guess, read_guesses, runs

KINDS = {
    "plain": Plan(),
    "tp 4": load_preset("llama-70b-chat-4xh100"),
    "windows": Plan(model="gemma-3-27b", tp=2),
    "windows alone": Plan(model="mistral-7b-v0.1"),
    "MLA": Plan(model="deepseek-v3", gpu="h200", tp=8),
    "MLA with an indexer, over ranks": Plan(model="deepseek-v3.2", gpu="h200", tp=8, dcp=4),
    "compressed": Plan(model="deepseek-v4-flash", gpu="h200", tp=8),
    "states alone": Plan(model="falcon-mamba-7b"),
    "states and attention": Plan(model="qwen3-next-80b-a3b", tp=4),
    "stages": Plan(model="llama-3.1-70b", tp=2, pp=3),
    "a shared prefix": Plan(shared_prefix_tokens=1000, context=4096),
    "a pool as given": Plan(kv_cache_memory_bytes=2**35),
    "SGLang's share": Plan(mem_fraction_static=0.88),
    "speculation": Plan(spec_method="eagle3", spec_tokens=4),
    "a quota": Plan(tenant_quota_fraction=0.3),
    "few slots": Plan(max_num_seqs=8),
    "on demand": Plan(admission="on_demand"),
    "an overhead": Plan(allocator_overhead_fraction=0.1),
    "equal lengths": Plan(workload="auto", output_dist="fixed"),
    "one at a time": Plan(batch=1),
}
each_kind = pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)


def numbers(words: str) -> list[str]:
    """Numbers and signs of a line, in order; a share that belongs to a name is no operand."""
    bare = re.sub(r"\bat (?:utilization )?[\d.]+", "", words)
    return [token.replace(",", "") for token in re.findall(r"\d[\d,]*(?:\.\d+)?|[×/+−()^]", bare)]


def worked_out(line: str) -> tuple[float, float]:
    """Both sides of a line: what its left side comes to, and the first number to the right of the sign."""
    left, right = line.split(" = ")
    python = {"×": "*", "−": "-", "^": "**"}
    return eval(" ".join(python.get(token, token) for token in numbers(left))), float(numbers(right)[0])


def test_the_answers_of_the_first_plan_by_hand():
    report = evaluate(Plan(workload="seeded-200", batch=16))
    # 128 KiB a token, 16 tokens a block: 2 MiB a block; 128 and 512 blocks a request.
    blocks = report.memory.pool_bytes // (2 * 2**20)
    found = answers(report).numbers
    assert (found["fits_short"], found["fits_long"]) == (blocks // 128, blocks // 512)
    # E[max of 16] of 200 observed lengths, each as likely: the sum of x_i ((i/n)^16 - ((i-1)/n)^16).
    lengths = sorted(output for _, output in load_preset("seeded-200", "workload").samples)
    longest = sum(length * (((i + 1) / 200) ** 16 - (i / 200) ** 16) for i, length in enumerate(lengths))
    busy = 100 * sum(lengths) / 200 / longest
    assert found["busy"] == pytest.approx(busy, rel=1e-12)
    assert found["gain"] == pytest.approx(100 / busy, rel=1e-12)


@each_kind
def test_the_answers_are_the_reports_own(plan):
    report = evaluate(plan)
    found = answers(report).numbers
    for name, context in (("fits_short", 2048), ("fits_long", 8192)):
        assert found[name] == evaluate(plan.model_copy(update={"context": context})).capacity.batch_ceiling
    assert found["busy"] == 100 * report.batching.static_utilisation
    assert found["gain"] == report.batching.gain


def test_a_model_handed_over_is_asked_about_too():
    model = load_preset("llama-3.2-1b", "model")
    found = answers(evaluate(Plan(), model=model)).numbers
    assert found == answers(evaluate(Plan(model="llama-3.2-1b"))).numbers


@each_kind
def test_the_arithmetic_of_a_token_is_what_it_costs(plan):
    report = evaluate(plan)
    step = guide_words.token_step(report)
    (line,) = step.arithmetic
    left, right = worked_out(line)
    assert left == right
    if report.cache.bytes_per_token:
        assert right == report.cache.bytes_per_token
    else:
        assert (step.number, right) == ("0 B a token", report.cache.request_bytes_booked)


@each_kind
def test_the_pool_is_what_its_subtraction_leaves(plan):
    report = evaluate(plan)
    (line,) = guide_words.pool_step(report).arithmetic
    left, right = worked_out(line)
    # Each term is rounded to a hundredth.
    assert left == pytest.approx(right, abs=0.005 * (1 + len(numbers(line))))
    assert right == pytest.approx(report.memory.pool_bytes / 2**30, abs=0.005)


@each_kind
def test_what_fits_is_a_division_of_blocks(plan):
    report = evaluate(plan)
    step = guide_words.fit_step(report)
    blocks, reserve, on_demand = step.arithmetic
    left, right = worked_out(blocks)
    assert floor(left) == right == report.engine.num_blocks
    left, right = worked_out(reserve)
    assert left == pytest.approx(right, abs=0.0051)
    assert right == pytest.approx(report.capacity.memory_quotient, abs=0.0051)
    left, right = worked_out(on_demand)
    # The divisor is rounded to a hundredth.
    assert left == pytest.approx(right, rel=0.006)
    assert step.number.startswith(f"{report.capacity.batch_ceiling:,} request")
    for line, running in ((reserve, report.capacity.batch_ceiling), (on_demand, report.capacity.on_demand_running)):
        assert f"{running:,} whole" in line or f"allows {running:,}" in line


def test_a_running_request_holds_what_its_tokens_take_and_half_a_block():
    report = evaluate(Plan())
    books = report.capacity.resident_mean_tokens / 16 + 0.5
    assert f"/ {books:,.2f} a running request" in guide_words.fit_step(report).arithmetic[2]


def test_the_limit_that_binds_before_memory_is_named():
    def lines(**fields):
        return guide_words.fit_step(evaluate(Plan(**fields))).arithmetic

    assert lines(max_num_seqs=8)[1].endswith("; max_num_seqs allows 8")
    # A third of 54, floored.
    assert lines(tenant_quota_fraction=0.3)[1].endswith("; the quota allows 16")
    assert lines()[1].endswith(", so 54 whole")


@each_kind
def test_the_busy_share_is_a_division_of_lengths(plan):
    report = evaluate(plan)
    busy, gain = guide_words.batch_step(report).arithmetic
    left, right = worked_out(busy)
    assert 100 * left == pytest.approx(right, abs=0.05)
    assert right == pytest.approx(100 * report.batching.static_utilisation, abs=0.05)
    left, right = worked_out(gain)
    assert left == pytest.approx(right, abs=0.0051 + right * 1e-3)


@each_kind
def test_there_are_five_steps_and_four_answers_each_with_its_words(plan):
    report = evaluate(plan)
    steps = guide_words.steps(report)
    assert len(steps) == 5
    assert all(step.title and step.sentence.endswith(".") and step.number and step.arithmetic for step in steps)
    found = answers(report)
    shown = guide_words.metrics(found)
    assert len(shown) == len(guide_words.reasons(found)) == len(QUESTIONS) == 4
    assert all(len(metric.label) <= 18 and len(metric.whose) <= 28 for metric in shown)


def test_what_is_booked_beside_the_layers_that_grow_is_said():
    def sentence(**fields):
        return guide_words.token_step(evaluate(Plan(**fields))).sentence

    assert "come on top" not in sentence()
    assert "come on top" not in sentence(model="deepseek-v3", gpu="h200", tp=8)
    # 560 KiB: 62 layers in groups of 10 or 11, not the 80 KiB of the 10 that attend to all tokens.
    assert "560 KiB for every token" in sentence(model="gemma-3-27b")
    assert "come on top" in sentence(model="gemma-3-27b", gpu="h200", disable_hybrid_kv_cache_manager=True)
    assert "4 ranks" in sentence(model="deepseek-v3", gpu="h200", tp=8, dcp=4)


def test_why_four_times_the_tokens_book_less_is_said_by_kind_of_layer():
    def why(**fields):
        return guide_words.reasons(answers(evaluate(Plan(**fields))))[1]

    assert why().endswith("Four times the tokens book four times the memory")
    assert why(model="falcon-mamba-7b").endswith("book no more, as a state has one size")
    # 10 against 37 blocks of a request: three groups' states do not grow.
    assert "book 2.6 times the memory" in why(model="qwen3-next-80b-a3b", tp=4)


def test_a_context_at_which_none_fits_has_the_answer_0_and_a_reason():
    # A pool of 512 MiB has 256 blocks of 2 MiB; a request books 128 of them, or 512.
    found = answers(evaluate(Plan(context=2048, kv_cache_memory_bytes=2**29)))
    assert (found.numbers["fits_short"], found.numbers["fits_long"]) == (2, 0)
    assert "Not one sequence of 8,192 tokens fits" in guide_words.reasons(found)[1]


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_runs(name):
    assert runs(evaluate(load_preset(name)))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tp=3),  # refused
        Plan(model="llama-3.1-70b"),  # no pool
        Plan(model="llama-3.1-70b", tp=2, context=131072),  # a pool, but not one request
        Plan(tenant_quota_fraction=0),
        Plan(kv_cache_memory_bytes=2**40),  # more than the device has
        Plan(model="no-such-model"),
    ],
    ids=lambda plan: str(plan.model_dump(exclude_defaults=True)),
)
def test_what_does_not_run_is_known(plan):
    assert not runs(evaluate(plan))


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        ("requests", "54", 54),
        ("requests", " 1,200 ", 1200),
        ("requests", "0", 0),
        ("requests", "54.0", 54),
        ("percent", "34", 34),
        ("percent", "34.6 %", 34.6),
        ("percent", "100%", 100),
        ("times", "2.9", 2.9),
        ("times", "3x", 3),
        ("times", "3 ×", 3),
    ],
)
def test_a_guess_is_read_as_people_write_it(kind, text, number):
    assert read_guess(kind, text) == number


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("requests", "many"),
        ("requests", "-1"),
        ("requests", "1.5"),
        ("requests", "54%"),
        ("requests", "1,20"),
        ("requests", "99999999"),
        ("requests", "1e3"),
        ("requests", "nan"),
        ("percent", "0.34"),
        ("percent", "101"),
        ("percent", "34x"),
        ("times", "0"),
        ("times", "1001"),
        ("times", "inf"),
        ("times", "x"),
    ],
)
def test_a_guess_that_cannot_be_read_is_refused_with_the_rule_and_what_was_given(kind, text):
    with pytest.raises(ValueError, match="must be") as error:
        read_guess(kind, text)
    assert guide.RULES[kind] in str(error.value)
    assert str(error.value).endswith(f"got {text}")


def test_guesses_left_empty_are_none_and_wrong_ones_are_named():
    guesses, wrong = read_guesses({"fits_short": "100", "fits_long": "  ", "busy": "lots"})
    assert guesses == {"fits_short": 100}
    assert wrong == ["Busy share of a static batch, %: must be a percentage from 1 to 100, such as 75; got lots"]


@pytest.mark.parametrize(
    ("guess", "answer", "words"),
    [
        (54, 54, "right"),
        (34.6, 34.63, "right"),
        (52, 54, "right within 5%"),
        (60, 54, "11% too high"),
        (40, 54, "26% too low"),
        (108, 54, "2.0 times too high"),
        (27, 54, "2.0 times too low"),
        (5400, 54, "100.0 times too high"),
        (0, 0, "right"),
        (3, 0, "too high: not one fits"),
        (0, 54, "too low: some do fit"),
    ],
)
def test_how_far_a_guess_is_off_is_a_ratio_in_words(guess, answer, words):
    assert how_far(guess, answer) == words


def test_a_guess_stands_beside_its_answer_and_none_where_there_was_none():
    found = answers(evaluate(Plan()))
    compared = guide_words.comparisons(found, {"fits_long": 108, "gain": found.numbers["gain"]})
    assert compared == ["", "Your guess 108: 2.0 times too high", "", f"Your guess {found.numbers['gain']:g}×: right"]
