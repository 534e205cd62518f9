"""Files of plans and limits: what they may hold, and one line for everything else."""

import json

import pytest
from hypothesis import given
from strategies import CONFIGS, known_plans

from kvplan import Plan, encode_link, evaluate, load_preset, model_from_hf_config, plan_files
from kvplan.plan_files import MAX_BYTES, PlanFile, read_plan_file
from kvplan.texts import spec_text

READY = "llama-70b-chat-4xh100"
EXPECT = {"min_batch_ceiling": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("plans")


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder, content, name="plan.toml"):
    return read_plan_file(written(folder / name, content))


@given(known_plans())
def test_a_plan_comes_back_out_of_json_and_out_of_toml(folder, plan):
    fields = plan.model_dump(mode="json")
    assert read(folder, json.dumps(fields | {"expect": EXPECT}), "plan.json") == PlanFile(plan, EXPECT)
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items() if value is not None]
    assert read(folder, "\n".join([*lines, "[expect]", "min_batch_ceiling = 1"])) == PlanFile(plan, EXPECT)


def test_a_ready_plan_or_a_link_can_be_the_base(folder):
    eight = load_preset(READY).model_copy(update={"tp": 8})
    assert read(folder, f'preset = "{READY}"\ntp = 8\nexpect.fits = true').plan == eight
    link = encode_link(load_preset(READY), "https://example.org/")
    assert read(folder, f'link = "{link}"\ntp = 8\nexpect.fits = true').plan == eight


def test_a_link_of_the_file_is_compared_with_what_it_recorded(folder):
    link = encode_link(load_preset(READY))
    assert read(folder, f'link = "{link}"\nexpect.fits = true').recorded.changes == ()
    changed = read(folder, f'link = "{link.replace("&r=", "&r=9")}"\ntp = 8\nexpect.fits = true').recorded
    assert [line.split(":")[0] for line in changed.changes] == ["Batch ceiling"]
    assert read(folder, 'link = "?tp=4"\nexpect.fits = true').recorded is None


def test_schema_and_version_of_a_saved_plan_belong_to_the_file(folder):
    found = read(folder, 'schema = "kvplan.plan/1"\nversion = "0.0.1"\ntp = 2\nexpect.fits = true')
    assert found == PlanFile(Plan(tp=2), {"fits": True})


def test_auto_leaves_a_field_of_the_base_to_the_model_again(folder):
    preset = load_preset("llama-8b-chat-l4")
    assert preset.weight_dtype is not None
    plan = read(folder, 'preset = "llama-8b-chat-l4"\nweight_dtype = "auto"\nexpect.fits = true').plan
    assert plan == preset.model_copy(update={"weight_dtype": None})


def test_a_config_beside_the_file_is_the_model(folder):
    (folder / "models").mkdir(exist_ok=True)
    config = CONFIGS["gemma-3-27b-it"]
    written(folder / "models/config.json", json.dumps(config))
    plan = read(folder, 'hf_config = "models/config.json"\ntp = 4\nexpect.fits = true').plan
    assert plan == Plan(tp=4, spec=spec_text(model_from_hf_config(config)))
    assert evaluate(plan).setting.model.groups == model_from_hf_config(config).groups


def test_name_and_description_are_free_and_belong_to_no_plan(folder):
    found = read(folder, 'name = "chat ü"\ndescription = "a\\nb"\nexpect.fits = true')
    assert found == PlanFile(Plan(), {"fits": True}, "chat ü", "a\nb")


def test_a_byte_order_mark_and_the_line_ends_of_windows_are_no_mistake(folder):
    assert read(folder, b"\xef\xbb\xbftp = 2\r\n[expect]\r\nfits = true\r\n").plan == Plan(tp=2)
    assert read(folder, b'\xef\xbb\xbf{"tp": 2,\r\n"expect": {"fits": true}}', "plan.json").plan == Plan(tp=2)


def test_limits_of_the_caller_go_on_top_of_the_files(folder):
    path = written(folder / "plan.toml", "[expect]\nfits = true\nmin_num_blocks = 9\n")
    assert read_plan_file(path, {"min_num_blocks": 10}).expect == {"fits": True, "min_num_blocks": 10}
    assert read_plan_file(written(path, "tp = 2"), {"fits": True}) == PlanFile(Plan(tp=2), {"fits": True})


DEEP = 100_000
BAD = {
    "not JSON": ("plan.json", "{", "cannot be read as JSON, Expecting property name"),
    "empty JSON": ("plan.json", "", "cannot be read as JSON, Expecting value"),
    "a list": ("plan.json", "[1]", "must be a table of fields, got [1]"),
    "a number": ("plan.json", "5", "must be a table of fields, got 5"),
    "NaN": ("plan.json", '{"expect": {"max_ttft_s": NaN}}', "cannot be read as JSON, numbers must be finite, got NaN"),
    "infinity": ("plan.json", '{"tp": -Infinity}', "numbers must be finite, got -Infinity"),
    "1e999": ("plan.json", '{"expect": {"max_ttft_s": 1e999}}', "expect.max_ttft_s: Input should be a finite number"),
    "a key twice": ("plan.json", '{"tp": 1, "tp": 2}', "tp: given more than once"),
    "a limit twice": ("plan.json", '{"expect": {"fits": true, "fits": false}}', "fits: given more than once"),
    "deep JSON": ("plan.json", '{"tp":' * DEEP, "is nested too deeply"),
    "deep lists": ("plan.json", '{"tp": ' + "[" * 500 + "]" * 500 + "}", "tp: "),
    "a long number": ("plan.json", f'{{"tp": {"9" * 5_000}}}', "JSON, a number has more than 4,300 digits"),
    "a null": ("plan.json", '{"tp": null, "expect": {"fits": true}}', "tp: Input should be a valid integer, got None"),
    "not TOML": ("plan.toml", "tp = ", "cannot be read as TOML, Invalid value"),
    "a field twice": ("plan.toml", "tp = 1\ntp = 2", "cannot be read as TOML, Cannot overwrite a value"),
    "deep TOML": ("plan.toml", "tp = " + "[" * DEEP, "is nested too deeply"),
    "NaN in TOML": ("plan.toml", "expect.max_ttft_s = nan", "expect.max_ttft_s: Input should be a finite number"),
    "a huge number": ("plan.toml", "tp = 0x" + "f" * 9_000, "tp: Input should be"),
    "not UTF-8": ("plan.toml", b"tp = 1 # \xff", "must be UTF-8, got byte 0xff at 9"),
    "UTF-16": ("plan.json", '{"tp": 1}'.encode("utf-16"), "must be UTF-8, got byte 0xff at 0"),
    "nothing": ("plan.toml", "", "expect: nothing to check, needs at least one limit"),
    "no limits": ("plan.toml", "tp = 2", "expect: nothing to check, needs at least one limit"),
    "empty limits": ("plan.toml", "tp = 2\n[expect]", "expect: nothing to check, needs at least one limit"),
    "limits that are none": ("plan.toml", "expect = 5", "expect: must be a table of limits, got 5"),
    "null limits": ("plan.json", '{"expect": null}', "expect: must be a table of limits, got None"),
    "an unknown limit": ("plan.toml", "expect.min_foo = 5", "expect.min_foo: is no expectation"),
    "an unknown field": ("plan.toml", 'colour = "red"', "colour: no field of a plan"),
    "a long unknown field": ("plan.toml", f'{"c" * 10_000} = "red"', "…: no field of a plan"),
    "a field that is a table": ("plan.toml", "[tp]\na = 1", "tp: "),
    "a bad value": ("plan.toml", "tp = 0", "tp: Input should be greater than or equal to 1, got 0"),
    "two bad values": ("plan.toml", 'tp = 0\nkv_dtype = "fp7"', "; kv_dtype: "),
    "a flag for a number": ("plan.toml", "tp = true", "tp: Input should be a number, got True"),
    "an unknown model": ("plan.toml", 'model = "llama-3.1-9b"\nexpect.fits = true', "nearest: llama-3.1-8b"),
    "an unknown GPU": ("plan.toml", 'gpu = "h1000"\nexpect.fits = true', "gpu: no preset named 'h1000'"),
    "an unknown preset": ("plan.toml", 'preset = "nope"', "plan: no preset named 'nope'"),
    "a preset that is no text": ("plan.toml", "preset = 5", "preset: must be a text, got 5"),
    "a preset and a link": ("plan.toml", 'preset = "a"\nlink = "b"', "preset and link: only one of them can be given"),
    "a partly bad link": ("plan.toml", 'link = "?tp=4&colour=red"', "link: colour: no field of a plan"),
    "no config": ("plan.toml", 'hf_config = "absent.json"', "hf_config: absent.json cannot be read, No such file"),
    "a config and a spec": ("plan.toml", 'hf_config = "a"\nspec = "b"', "hf_config and spec: only one of them"),
    "a config that is none": ("plan.toml", 'hf_config = "plan.toml"', "hf_config: config: must be JSON"),
    "a name that is no text": ("plan.toml", "name = 5", "name: must be a text, got 5"),
    "another schema": ("plan.toml", 'schema = "kvplan.plan/2"', "schema: must be kvplan.plan/1, got 'kvplan.plan/2'"),
    "a version that is no text": ("plan.toml", "version = 2", "version: must be a text, got 2"),
    "too long": ("plan.toml", "#" * (MAX_BYTES + 1), "must be at most 1,048,576 bytes"),
    "another kind of file": ("plan.yaml", "tp: 2", "must end in .json or .toml, got '.yaml'"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_used_is_one_line_with_field_rule_and_value(folder, case):
    name, content, message = case
    with pytest.raises(ValueError, match=r".") as error:
        read(folder, content, name)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 500


def test_what_is_no_file_is_one_line(folder):
    (folder / "folder.toml").mkdir(exist_ok=True)
    for name, message in (("absent.toml", "cannot be read, No such file"), ("folder.toml", "cannot be read, Is a dir")):
        with pytest.raises(ValueError, match=message):
            read_plan_file(folder / name)


def test_the_example_of_the_module_is_a_file_that_can_be_read(folder):
    example = plan_files.__doc__.split("\n\n", 1)[1].replace("    ", "")
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen3-8B"]))
    found = read(folder, example)
    assert (found.name, found.plan.context, found.expect) == ("chat", 16384, {"min_batch_ceiling": 24})
