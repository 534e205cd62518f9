"""Verdicts as JUnit XML, which CI servers show as tests: a suite for each plan, a case for each limit.

Source: the dialect of Jenkins' junit plugin (junit-10.xsd), of which GitLab reads the same elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from kvplan.check import CheckResult, PlanResult, Verdict, sentence

ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold."""


def junit_xml(found: CheckResult) -> bytes:
    """The document. A limit that is missed is a failure, a file that cannot be judged an error."""
    suites = [_suite(result) for result in found.files]
    root = ElementTree.Element("testsuites", name="kvplan check", **_sums(suites))
    root.extend(suites)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _suite(result: PlanResult) -> ElementTree.Element:
    name = _legal(result.file or "plan")
    cases = [_case(name, verdict) for verdict in result.expectations]
    if result.error is not None:
        case = ElementTree.Element("testcase", classname=name, name="readable")
        _add(case, "error", "bad input", result.error)
        cases.append(case)
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
    }
    suite = ElementTree.Element("testsuite", name=name, **{key: str(value) for key, value in counts.items()})
    suite.extend(cases)
    return suite


def _case(suite: str, verdict: Verdict) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=suite, name=verdict.name)
    if not verdict.passed:
        _add(case, "failure", "missed", sentence(verdict))
    return case


def _add(case: ElementTree.Element, tag: str, kind: str, message: str) -> None:
    ElementTree.SubElement(case, tag, type=kind, message=_legal(message)).text = _legal(message)


def _sums(suites: Iterable[ElementTree.Element]) -> dict[str, str]:
    return {key: str(sum(int(suite.get(key)) for suite in suites)) for key in ("tests", "failures", "errors")}


def _legal(text: str) -> str:
    return ILLEGAL.sub("?", text)
