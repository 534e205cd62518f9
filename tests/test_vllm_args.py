"""vLLM command lines as plans: every spelling, what is said of the rest, and what must not be repeated."""

import contextlib
import io
import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONFIGS

from kvplan import Plan, cli, load_preset, model_from_hf_config, vllm_arguments
from kvplan.plan import from_text
from kvplan.texts import spec_text
from kvplan.vllm_args import fields_for, human_readable_int, read_vllm_args, remarks

GIB = 2**30
LLAMA = load_preset("llama-3.1-8b", "model")


def fields(text):
    return read_vllm_args(text).fields


def checked(*arguments):
    """What `check` makes of a command line: the run, and the plan."""
    command = ["check", "--json", "--expect", "min_batch_ceiling=0", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as stdout, contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = cli.main(command)
    run = subprocess.CompletedProcess(command, code, stdout.getvalue(), stderr.getvalue())
    return run, Plan.model_validate(json.loads(run.stdout)["files"][0]["plan"]) if run.stdout else None


def plan_of(*arguments):
    return checked(*arguments)[1]


# Spellings


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 4 --max-model-len 32768",
        "vllm serve --tensor-parallel-size 4 --max-model-len 32768 Qwen/Qwen3-32B",
        "vllm serve --trust-remote-code Qwen/Qwen3-32B -tp 4 --max-model-len=32K",
        "vllm serve --port 8000 Qwen/Qwen3-32B -tp 4 --max-model-len=32K",
        "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-32B -tp=4 --max_model_len 32768",
        "python3 -m vllm.entrypoints.cli.main serve Qwen/Qwen3-32B --tensor_parallel_size=4 --max_model_len=32768",
        "CUDA_VISIBLE_DEVICES=0,1,2,3 HF_HOME=/x /opt/bin/vllm serve 'Qwen/Qwen3-32B' -tp 4 --max-model-len 32768",
        "vllm serve Qwen/Qwen3-32B \\\n  --tensor-parallel-size 4 \\\n  --max-model-len 32768",
        "--model Qwen/Qwen3-32B --tensor-parallel-size 8 --max-model-len 32768 --tensor-parallel-size 4",
        "Qwen/Qwen3-32B -tp 4 --max-model-len 32768 --max-num-seqs None",
    ],
)
def test_one_start_in_every_spelling(text):
    args = read_vllm_args(text)
    assert (args.model, args.fields) == ("Qwen/Qwen3-32B", {"tp": "4", "context": "32768"})
    assert args.unknown == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-pp 2", {"pp": 2}),
        ("-dp 4", {"dp": 4}),
        ("-dcp 2", {"dcp": 2}),
        ("-ep", {"enable_expert_parallel": True}),
        ("--pipeline-parallel-size 2", {"pp": 2}),
        ("--data-parallel-size 4", {"dp": 4}),
        ("--decode-context-parallel-size 2", {"dcp": 2}),
        ("--enable-expert-parallel", {"enable_expert_parallel": True}),
        ("--gpu-memory-utilization 0.85", {"gpu_memory_utilization": 0.85}),
        ("--kv-cache-memory-bytes 35755602739", {"kv_cache_memory_bytes": 35_755_602_739}),
        ("--kv-cache-memory-bytes 25.6g", {"kv_cache_memory_bytes": 25_600_000_000}),
        ("--kv-cache-memory-bytes 25G", {"kv_cache_memory_bytes": 25 * GIB}),
        ("--kv-cache-dtype fp8", {"kv_dtype": "fp8"}),
        ("--kv-cache-dtype fp8_e4m3", {"kv_dtype": "fp8"}),
        ("--kv-cache-dtype fp8_e5m2", {"kv_dtype": "fp8_e5m2"}),
        ("--kv-cache-dtype fp8_inc", {"kv_dtype": "fp8"}),
        ("--kv-cache-dtype fp8_ds_mla", {"kv_dtype": "fp8"}),
        ("--kv-cache-dtype bfloat16", {"kv_dtype": "bf16"}),
        ("--kv-cache-dtype int8_per_token_head", {"kv_dtype": "int8_per_token_head"}),
        ("--kv-cache-dtype auto", {"kv_dtype": "auto"}),
        ("--block-size 32", {"block_size": 32}),
        ("--max-num-seqs 64", {"max_num_seqs": 64}),
        ("--max-num-batched-tokens 8k", {"max_num_batched_tokens": 8_000}),
        ("--enforce-eager", {"enforce_eager": True}),
        ("--no-async-scheduling", {"async_scheduling": False}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--no_enable_prefix_caching", {"enable_prefix_caching": False}),
        ("--enable-prefix-caching --no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--no-enable-prefix-caching --enable-prefix-caching", {"enable_prefix_caching": True}),
        ("--disable-hybrid-kv-cache-manager", {"disable_hybrid_kv_cache_manager": True}),
        ("--mamba-ssm-cache-dtype float32", {"mamba_ssm_cache_dtype": "fp32"}),
        ("--mamba-ssm-cache-dtype auto", {}),
        ("--max-num-seqs None --block-size ''", {}),
        ("--max-num-seqs 64 --max-num-seqs None", {}),
        (
            """--speculative-config '{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3}'""",
            {"spec_method": "eagle3", "spec_tokens": 3},
        ),
        (
            """-sc '{"method": "deepseek_mtp", "num-speculative-tokens": 1}'""",
            {"spec_method": "mtp", "spec_tokens": 1},
        ),
        (
            "--speculative-config.method ngram --speculative_config.num_speculative_tokens=5",
            {"spec_method": "ngram", "spec_tokens": 5},
        ),
        (
            """--speculative-config '{"method": "mtp"}' --speculative-config.num-speculative-tokens 2""",
            {"spec_method": "mtp", "spec_tokens": 2},
        ),
        ("--spec-method suffix --spec-tokens 24", {"spec_method": "suffix", "spec_tokens": 24}),
        ("--spec-model yuhuili/EAGLE3-LLaMA3.1 --spec-tokens 3", {"spec_method": "eagle3", "spec_tokens": 3}),
        ("--speculative-config None", {}),
    ],
)
def test_every_argument_that_a_plan_has_becomes_its_field(text, expected):
    plan, dropped = from_text(fields(text))
    assert (plan, dropped) == (Plan(**expected), {})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1k", 1_000), ("1K", 1_024), ("25.6k", 25_600), ("2m", 2_000_000), ("2M", 2**21), ("1.5g", 1_500_000_000),
        ("3G", 3 * GIB), ("1t", 10**12), ("1T", 2**40), ("32768", 32_768), (" 32768 ", 32_768),
    ],
)  # fmt: skip
def test_human_readable_numbers_are_decimal_in_lower_case_and_binary_in_upper_case(text, number):
    """The examples of vLLM's human_readable_int, and one of each suffix."""
    assert human_readable_int(text) == number


@pytest.mark.parametrize("text", ["25.6K", "1.5G", "32k5", "k", "1.5", "1e3", "", "32 k", "1kb", "-k"])
def test_what_vllm_does_not_read_as_a_number_is_none(text):
    with pytest.raises(ValueError, match=r"."):
        human_readable_int(text)


# What hangs on the model


def test_without_a_length_the_model_decides_as_vllm_does():
    run, plan = checked("--vllm-args", "vllm serve meta-llama/Llama-3.1-8B-Instruct")
    assert plan == Plan(context=131_072)
    assert run.stderr == "kvplan: --max-model-len: not given, so what the model has, 131,072\n"


@pytest.mark.parametrize("text", ["auto", "AUTO", "-1"])
def test_auto_takes_the_longest_that_fits(text):
    """4,095 blocks of 16 tokens beside the null block: 8 GiB at 2 MiB a block."""
    command = f"vllm serve meta-llama/Llama-3.1-8B --kv-cache-memory-bytes 8G --max-model-len {text}"
    assert plan_of("--vllm-args", command) == Plan(kv_cache_memory_bytes=8 * GIB, context=65_520)
    assert plan_of("--vllm-args", command.replace("8G", "64G")).context == 131_072
    assert plan_of("--vllm-args", command, "--set", "context=4096").context == 4_096
    run, plan = checked("--vllm-args", command.replace("8G", "1k"))
    assert plan.context == 131_072
    assert json.loads(run.stdout)["files"][0]["fits"] is False


@pytest.mark.parametrize(
    ("text", "model", "width"),
    [
        ("vllm serve RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", LLAMA, "fp8"),
        ("--quantization fp8", LLAMA, "fp8"),
        ("-q awq_marlin", LLAMA, "int4"),
        ("-q gptq", LLAMA, "int4"),
        ("--dtype bfloat16", LLAMA, None),
        ("--dtype half", LLAMA, None),
        ("--dtype auto", LLAMA, None),
        ("--dtype float32", LLAMA, "fp32"),
        ("--dtype float --quantization fp8", LLAMA, "fp8"),
        ("--dtype float32", load_preset("gpt-oss-120b", "model"), None),
        ("--quantization mxfp4 --dtype bfloat16", load_preset("gpt-oss-120b", "model"), None),
        ("--dtype half", LLAMA.model_copy(update={"dtype": "fp32"}), "fp16"),
    ],
)
def test_the_width_of_the_weights_is_that_of_the_quantisation_or_of_the_dtype(text, model, width):
    found, _ = fields_for(read_vllm_args(text), model)
    assert found.get("weight_dtype") == width


def test_a_cache_in_float32_follows_a_model_in_float32_unless_it_is_given():
    assert fields_for(read_vllm_args("--dtype float32"), LLAMA)[0]["kv_dtype"] == "fp32"
    assert fields_for(read_vllm_args("--dtype float32 --kv-cache-dtype fp8"), LLAMA)[0]["kv_dtype"] == "fp8"


def test_a_quantisation_whose_width_is_not_known_is_said():
    _, notes = fields_for(read_vllm_args("--quantization torchao --max-model-len 8k"), LLAMA)
    assert notes == ["not modelled: --quantization: how wide its weights are is not known; set weight_dtype"]
    _, notes = fields_for(read_vllm_args("-q torchao --max-model-len 8k"), load_preset("gpt-oss-120b", "model"))
    assert notes == []


def test_experts_over_several_replicas_are_said():
    experts = load_preset("deepseek-v3", "model")
    text = "--max-model-len 8k --enable-expert-parallel --data-parallel-size {}"
    assert fields_for(read_vllm_args(text.format(1)), experts)[1] == []
    assert fields_for(read_vllm_args(text.format(8)), LLAMA)[1] == []
    [note] = fields_for(read_vllm_args(text.format(8)), experts)[1]
    assert note.startswith("not modelled: --data-parallel-size: vLLM spreads experts")


# What is no field


def test_the_rest_is_named_in_three_kinds_without_its_values():
    command = (
        "vllm serve meta-llama/Llama-3.1-8B --host 0.0.0.0 --port 8000 --api-key k3y-one k3y-two --hf-token=t0ken "
        "--served-model-name chat talk --max-model-len 8192 --cpu-offload-gb 10 --swap-space 4 "
        "--num-gpu-blocks-override 100 --no-enable-chunked-prefill --no-enable-lora -O3 --frobnicate s3cret "
        "--wibble=s3cret "
        '--speculative-config \'{"method": "draft_model", "model": "s3cret", "num_speculative_tokens": 5}\''
    )
    run, plan = checked("--vllm-args", command)
    assert plan == Plan()
    assert run.stderr.splitlines() == [
        "kvplan: ignored, as they take no GPU memory: --host, --port, --api-key, --hf-token, --served-model-name, "
        "--swap-space, --no-enable-lora",
        "kvplan: not modelled: --cpu-offload-gb: weights that stay in host memory count as on the GPU; set weights_gib",
        "kvplan: not modelled: --num-gpu-blocks-override: blocks follow from the memory; set kv_cache_memory_bytes",
        "kvplan: not modelled: --no-enable-chunked-prefill: prompts are taken to be prefilled in chunks",
        "kvplan: not modelled: -O3: the sizes of CUDA graphs are vLLM's defaults; set cuda_graph_gib",
        "kvplan: not modelled: --speculative-config: only ngram, suffix, mtp, eagle3 are counted",
        "kvplan: not known: --frobnicate, --wibble",
    ]
    printed = run.stdout + run.stderr
    assert not [word for word in ("s3cret", "k3y", "t0ken", "0.0.0.0", "8000") if word in printed]


@given(
    st.sampled_from(sorted(vllm_arguments.IGNORED - vllm_arguments.SWITCHES))
    | st.from_regex(r"[a-z]{3,9}_zz", fullmatch=True),
    st.booleans(),
)
def test_no_value_of_an_argument_that_is_no_field_is_ever_repeated(name, equals):
    written = f"--{name.replace('_', '-')}"
    args = read_vllm_args(f"{written}{'=' if equals else ' '}SECRET --tensor-parallel-size 2")
    assert args.fields == {"tp": "2"}
    assert args.ignored + args.unknown == (written,)
    assert "SECRET" not in repr(args) + "".join(remarks(args))


def test_each_argument_has_one_meaning():
    kinds = [
        set(vllm_arguments.FIELDS),
        set(vllm_arguments.OF_THE_MODEL),
        set(vllm_arguments.SPECULATIVE),
        set(vllm_arguments.NOT_MODELLED),
        set(vllm_arguments.IGNORED),
    ]
    names = set().union(*kinds)
    assert sum(map(len, kinds)) == len(names)
    assert set(vllm_arguments.FIELDS.values()) <= set(Plan.model_fields)
    assert len(set(vllm_arguments.FIELDS.values())) == len(vllm_arguments.FIELDS)
    assert names >= vllm_arguments.SWITCHES | vllm_arguments.LISTS | vllm_arguments.HUMAN_READABLE
    assert set(vllm_arguments.SHORT.values()) <= names


# The command


def test_a_command_line_goes_over_the_preset_and_below_what_is_set():
    ready = load_preset("llama-70b-chat-4xh100")
    arguments = ["--preset", "llama-70b-chat-4xh100", "--vllm-args", "-tp 8 --max-model-len 16k --enforce-eager"]
    expected = ready.model_copy(update={"tp": 8, "context": 16_000, "enforce_eager": True})
    assert plan_of(*arguments) == expected
    assert plan_of(*arguments, "--set", "context=4096", "--set", "gpu=h200") == expected.model_copy(
        update={"context": 4096, "gpu": "h200"}
    )


def test_a_config_is_the_model_whatever_the_command_line_names(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen3-8B"]))
    run, plan = checked("--hf-config", str(tmp_path / "config.json"), "--vllm-args", "vllm serve own/model -tp 2")
    model = model_from_hf_config(CONFIGS["Qwen3-8B"])
    assert plan == Plan(spec=spec_text(model), tp=2, context=model.max_position_embeddings)
    assert run.returncode == 0


def test_a_gate_before_a_launch_is_met_or_missed():
    command = ["--vllm-args", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192 --kv-cache-memory-bytes 8G"]
    for limit, code in ((8, 0), (9, 1)):
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            assert cli.main(["check", *command, "--expect", f"min_batch_ceiling={limit}"]) == code
        assert stdout.getvalue().splitlines()[1].split()[:5] == [
            "ok" if code == 0 else "MISS", "min_batch_ceiling", "8", "≥", str(limit),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm serve foo/Llama-9-70B", "model: no preset named 'foo/Llama-9-70B'; nearest: "),
        ("-tp 4", "--vllm-args: names no model; give --hf-config, or --set model=NAME"),
        ("", "--vllm-args: names no model"),
        ("vllm serve one two", "--vllm-args: one model can be named, got 2 words that belong to no argument"),
        ("vllm serve one --model two", "--vllm-args: one model can be named, got 2 words"),
        ("vllm serve 'one", "--vllm-args: cannot be split into words, No closing quotation"),
        ("x -tp 0", "-tp: Input should be greater than or equal to 1, got '0'"),
        ("x --tensor_parallel_size four", "--tensor_parallel_size: Input should be a valid integer"),
        ("x --tensor-parallel-size", "--tensor-parallel-size: needs a value"),
        ("x --max-model-len --port 8", "--max-model-len: needs a value"),
        ("x --max-model-len 25.6K", "--max-model-len: must be a whole number, or end in k, m, g, t"),
        ("x --max-model-len 0", "--max-model-len: Input should be greater than or equal to 1, got '0'"),
        ("x --max-model-len " + "9" * 5000, "--max-model-len: must be a whole number"),
        ("x --max-num-batched-tokens " + "9" * 400 + "k", "--max-num-batched-tokens: must be a whole number"),
        ("x --gpu-memory-utilization 1.5", "--gpu-memory-utilization: Input should be less than or equal to 1"),
        ("x --gpu-memory-utilization nan", "--gpu-memory-utilization: Input should be a finite number, got 'nan'"),
        ("x --kv-cache-dtype nvfp4", "--kv-cache-dtype: Input should be 'auto', 'bf16'"),
        ("x --dtype int8", "--dtype: must be one of auto, half, float16, bfloat16, float, float32, got 'int8'"),
        ("x --enforce-eager=true", "--enforce-eager: takes no value, got 'true'"),
        ("x --speculative-config [1]", "--speculative-config: must be a JSON object, got '[1]'"),
        ("x --speculative-config '{'", "--speculative-config: must be a JSON object, got '{'"),
        ("x --speculative-config", "--speculative-config: needs a value"),
        ("""x --speculative-config '{"method":"mtp"}'""", "--speculative-config: needs num_speculative_tokens"),
        ("x --spec-method mtp --spec-tokens 0", "--spec-tokens: num_speculative_tokens must be from 1 to 64, got '0'"),
        ("x --spec-method mtp --spec-tokens many", "num_speculative_tokens must be from 1 to 64, got 'many'"),
    ],
    ids=lambda value: value[:40],
)
def test_what_cannot_be_read_is_one_line_that_names_the_argument(text, message):
    run, _ = checked(f"--vllm-args={text}")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("kvplan: ")
    assert len(run.stderr.splitlines()) == 1
    assert len(run.stderr) < 500
    assert message in run.stderr


WORDS = st.sampled_from([
    *(f"--{name.replace('_', '-')}" for name in vllm_arguments.FIELDS), "-tp", "-O3", "--no-enable-lora", "--x", "-",
    "--speculative-config", "--speculative-config.method", "--model", "1", "0", "-1", "32k", "auto", "fp8", "None",
    "true", "{}", '{"method": "mtp", "num_speculative_tokens": 1}', "[[[[", "Qwen/Qwen3-8B", "serve", "--", "--=", "=",
])  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=6), max_size=8))
def test_any_words_make_a_plan_or_are_refused_in_one_line(words):
    run, plan = checked("--set", "model=llama-3.1-8b", f"--vllm-args={shlex.join(words)}")
    assert all(line.startswith("kvplan: ") for line in run.stderr.splitlines())
    if plan is None:
        assert (run.returncode, len(run.stderr.splitlines())) == (2, 1)
    else:
        assert run.returncode in (0, 1)
