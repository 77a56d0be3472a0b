"""The rules of `lint` beyond placement, and for each numeric one a net that goes wrong without it.

    python -m tests.proof.hazards      writes tests/proof/HAZARDS.md; a minute

The errors are those of the reference runtime with the Neural Engine's known effects against fp32 (or against the right
result, where fp32 in the same form is wrong too), relative to the largest right number. Nothing was measured on a chip.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' own rooms
from hazards import probes

from ane_sweep.hazards.rule import RULES

TARGET = Path(__file__).with_name("HAZARDS.md")


def describe_rules() -> list[str]:
    """Return a table of the rules: condition, effect, source, and what mends it."""
    lines = ["| rule | when | what happens | source | what mends it |", "| --- | --- | --- | --- | --- |"]
    for name, rule in RULES.items():
        mends = "; ".join(filter(None, (", ".join(f"`{one}`" for one in rule.mends), rule.do)))
        cells = (f"{rule.kind}/{name}", rule.condition, rule.effect, f"{rule.source} ({rule.confidence})", mends)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def measure_probes() -> list[str]:
    """Return a table of the probe nets: the error, the warning, and the error once mended."""
    lines = ["| rule | error | what lint says | mended by | error then |", "| --- | ---: | --- | --- | ---: |"]
    for probe in probes.list_probes():
        with tempfile.TemporaryDirectory() as folder:
            path = probes.build(probe, Path(folder))
            before = probes.measure_error(path, probe.values, probe.effects, probe.truth)
            finding = probes.find_named(path)[probe.rule]
            made = probes.mend(probe, path)
            after = probes.measure_error(made, probe.mended_values or probe.values, probe.effects, probe.truth)
        how = f"`fix --only {probe.mended}`" if isinstance(probe.mended, str) else "the net written otherwise"
        lines.append(
            f"| {probe.rule} | {before:.2g} | {finding.why.replace('|', chr(92) + '|')} | {how} | {after:.1g} |"
        )
    return lines


def write() -> None:
    kept = TARGET.read_text(encoding="utf-8").partition("## Programs of others\n")[2] if TARGET.exists() else ""
    head = [
        "# What lint warns of beyond placement",
        "",
        "Written by `python -m tests.proof.hazards`, but for the last part.",
        "",
    ]
    parts = [*head, "## Rules", "", *describe_rules(), "", "## A net for each numeric rule", "", *measure_probes(), ""]
    TARGET.write_text("\n".join(parts) + f"\n## Programs of others\n{kept}", encoding="utf-8")


if __name__ == "__main__":
    write()
