"""Verdicts as a CI server reads them."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, cli
from kvplan.check import judged, sentence, together, unusable
from kvplan.junit import junit_xml

FITS = judged(Plan(), {"fits": True, "min_batch_ceiling": 10**6, "max_usd_per_hour": 5}, "plans/one.toml")
COUNTS = ("tests", "failures", "errors")


def parsed(*results):
    return ElementTree.fromstring(junit_xml(together(results)))


def test_a_suite_is_a_plan_and_a_case_is_a_limit():
    root = parsed(FITS, unusable("plans/two.toml", "tp: must be more"))
    assert root.tag == "testsuites"
    assert [root.get(key) for key in COUNTS] == ["4", "2", "1"]
    one, two = root
    assert (one.tag, one.get("name"), [one.get(key) for key in COUNTS]) == (
        "testsuite",
        "plans/one.toml",
        ["3", "2", "0"],
    )
    assert [case.get("name") for case in one] == ["fits", "min_batch_ceiling", "max_usd_per_hour"]
    assert {case.get("classname") for case in one} == {"plans/one.toml"}
    assert [[child.tag for child in case] for case in one] == [[], ["failure"], ["failure"]]
    assert [case[0].get("message") for case in one[1:]] == [sentence(each) for each in FITS.expectations[1:]]
    assert one[1][0].text.startswith("min_batch_ceiling: 54 sequences, must be at least 1,000,000")
    assert [two.get(key) for key in COUNTS] == ["1", "0", "1"]
    assert [(child.tag, child.get("type"), child.get("message")) for child in two[0]] == [
        ("error", "bad input", "tp: must be more")
    ]


def test_a_plan_out_of_options_has_a_name_too():
    assert parsed(judged(Plan(), {"fits": True}))[0].get("name") == "plan"


@pytest.mark.parametrize("name", ['<a> & "b"', "a\x00b\x1b[31m", "\udcff.toml", "\ufffe\uffff", "tab\tü𝄞"])
def test_no_name_of_a_file_breaks_the_document(name):
    suite = parsed(unusable(name, name))[0]
    expected = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "?", name)
    assert suite.get("name") == expected
    assert suite[0][0].text == expected


@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_makes_a_document_that_can_be_read(text):
    assert parsed(unusable(text, text)).get("errors") == "1"


def test_the_command_writes_it_beside_its_answer(tmp_path):
    (tmp_path / "one.toml").write_text("[expect]\nfits = true\nmin_batch_ceiling = 1000000\n")
    (tmp_path / "two.json").write_text("{")
    files = [str(tmp_path / name) for name in ("one.toml", "two.json", "junit.xml")]
    code = cli.main(["check", *files[:2], "--junit", files[2]])
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert code == 2
    assert [root.get(key) for key in COUNTS] == ["3", "1", "1"]
    assert (tmp_path / "junit.xml").read_bytes().startswith(b"<?xml version='1.0' encoding='utf-8'?>")
