"""JUnit's XML as Jenkins and GitLab read it: a suite for each package and chip, a case for each limit and kind of finding."""

from pathlib import Path
from xml.etree import ElementTree

from ane_sweep.ci.formats.places import describe, describe_title, show_path
from ane_sweep.ci.judgement import Judgement, Unread
from ane_sweep.outward import make_public


def write(judgements: list[Judgement], unread: list[Unread]) -> str:
    """Return one document. Errors fail their case; warnings and notes are its output."""
    root = ElementTree.Element("testsuites", name="ane-sweep lint")
    for made in judgements:
        _add_suite(root, made)
    for one in unread:
        suite = ElementTree.SubElement(
            root, "testsuite", name=show_path(Path(one.path)), tests="1", failures="0", errors="1"
        )
        case = ElementTree.SubElement(
            suite, "testcase", name="the package can be read", classname=str(suite.get("name"))
        )
        ElementTree.SubElement(case, "error", message=make_public(one.error), type="unreadable")
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _add_suite(root: ElementTree.Element, made: Judgement) -> None:
    name = f"{show_path(made.verdict.path)} on {made.verdict.chip}"
    suite = ElementTree.SubElement(root, "testsuite", name=name)
    failures = skips = 0
    for finding in made.findings:
        case = ElementTree.SubElement(suite, "testcase", name=f"{finding.rule}: {finding.what}", classname=name)
        title = describe_title(made, finding)
        if finding.severity == "error":
            ElementTree.SubElement(case, "failure", message=title, type=finding.rule).text = describe(finding)
            failures += 1
        elif finding.rule == "budget/not_estimated":
            ElementTree.SubElement(case, "skipped", message=describe(finding))
            skips += 1
        else:
            ElementTree.SubElement(case, "system-out").text = f"{finding.severity}: {describe(finding)}"
    if not failures:
        ElementTree.SubElement(suite, "testcase", name="all limits are kept", classname=name)
    counts = {"tests": len(suite), "failures": failures, "errors": 0, "skipped": skips}
    for key, count in counts.items():
        suite.set(key, str(count))
