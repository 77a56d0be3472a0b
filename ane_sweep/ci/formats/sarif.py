"""SARIF 2.1.0 (OASIS), which code scanning reads: a rule for each kind of finding, a result for each finding."""

import hashlib
import json
from urllib.parse import quote

from ane_sweep import __version__
from ane_sweep.ci.formats.places import describe, describe_title, find_place
from ane_sweep.ci.judgement import Judgement, Unread
from ane_sweep.outward import make_public
from ane_sweep.placement.findings import Finding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def write(judgements: list[Judgement], unread: list[Unread]) -> str:
    """Return one log with one run."""
    rules: dict[str, int] = {}
    results = [_result(made, finding, rules) for made in judgements for finding in made.findings]
    driver = {"name": "ane-sweep", "version": __version__, "rules": [_rule(rule) for rule in rules]}
    notes = [{"level": "error", "message": {"text": make_public(one.error)}} for one in unread]
    invocation = {"executionSuccessful": not unread, **({"toolExecutionNotifications": notes} if notes else {})}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "columnKind": "utf16CodeUnits", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(rule: str) -> dict[str, object]:
    words = rule.replace("/", ": ").replace("_", " ")
    return {"id": rule, "shortDescription": {"text": words}, "properties": {"tags": [rule.partition("/")[0]]}}


def _result(made: Judgement, finding: Finding, rules: dict[str, int]) -> dict[str, object]:
    file, line = find_place(made, finding)
    uri = ("file://" if file.startswith("/") else "") + quote(file)
    location: dict[str, object] = {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    }
    if finding.op:
        name = f"{finding.module}/{finding.op}" if finding.module else finding.op
        location["logicalLocations"] = [{"name": finding.op, "fullyQualifiedName": name, "kind": "member"}]
    print_of = "\0".join((finding.rule, made.verdict.chip, file, finding.op_type or "", finding.module or ""))
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.setdefault(finding.rule, len(rules)),
        "level": finding.severity,
        "message": {"text": f"{describe_title(made, finding)}: {describe(finding)}"},
        "locations": [location],
        "partialFingerprints": {"aneSweepFinding/v1": hashlib.sha256(print_of.encode()).hexdigest()[:32]},
        "properties": {
            "chip": made.verdict.chip,
            "ops": finding.ops,
            "confidence": finding.confidence,
            "source": finding.source,
        },
    }
