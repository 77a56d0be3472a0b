"""A comment for a pull request: one line, and a table that folds out."""

from ane_sweep.ci.formats.places import describe, show_path
from ane_sweep.ci.judgement import Judgement, Unread
from ane_sweep.outward import markdown
from ane_sweep.terminal import count

MARKER = "<!-- ane-sweep lint -->"  # by which a workflow finds its comment again
_MOST_ROWS = 50  # a comment holds 65,536 characters
_SIGNS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def write(judgements: list[Judgement], unread: list[Unread]) -> str:
    """Return the comment. It names every package and chip, and the findings of all of them."""
    lost = [f"❌ {markdown(one.error)}" for one in unread]
    if not judgements:
        return "\n".join([MARKER, *lost])
    failed = [made for made in judgements if not made.is_ok]
    sign = "❌" if failed else "❔" if any(made.in_doubt for made in judgements) else "✅"
    rows = _finding_rows(judgements)
    more = [f"\n{len(rows) - _MOST_ROWS} more: see `ane-sweep lint --json`."] if len(rows) > _MOST_ROWS else []
    return "\n".join([
        MARKER,
        *lost,
        f"{sign} **Neural Engine**: {_summarise(judgements, failed)}",
        "",
        f"<details><summary>{count(len(judgements), 'verdict')}, {count(len(rows), 'finding')} (predicted, not measured)</summary>",
        "",
        "| | package | chip | ops on the ANE | estimated ms | band | against the baseline |",
        "| --- | --- | --- | ---: | ---: | ---: | --- |",
        *map(_verdict_row, judgements),
        "",
        *([_finding_head(judgements), *rows[:_MOST_ROWS], *more] if rows else []),
        "",
        "</details>",
    ])  # fmt: skip


def _summarise(judgements: list[Judgement], failed: list[Judgement]) -> str:
    worst = (failed or judgements)[0]
    text = f"{markdown(show_path(worst.verdict.path))} on {worst.verdict.chip}: {_describe_verdict(worst)}"
    if errors := [finding for finding in worst.findings if finding.severity == "error"]:
        text += f"; {markdown(errors[0].what)}"
    return text + (f"; and {count(len(judgements) - 1, 'more verdict')}" if len(judgements) > 1 else "")


def _describe_verdict(made: Judgement) -> str:
    time = "not estimated" if made.ms is None else f"about {made.ms:g} ms"
    was = f" (was {made.was_ms:g})" if made.was_ms is not None and made.was_ms != made.ms else ""
    return f"{made.verdict.ane_share:.1%} on the ANE, {time}{was}"


def _verdict_row(made: Judgement) -> str:
    ops, estimate = made.verdict.summary.ops, made.verdict.prediction.estimate
    was = f"{made.was_ms:g} → " if made.was_ms is not None and made.was_ms != made.ms else ""
    cells = [
        "✅" if made.code == 0 else "❔" if made.is_ok else "❌", markdown(show_path(made.verdict.path)), made.verdict.chip,
        f"{ops.ane} of {ops.total}", "–" if made.ms is None else f"{was}{made.ms:g}",
        f"{estimate.low_ms:.3g} to {estimate.high_ms:.3g}" if estimate else "–", _describe_changes(made),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _describe_changes(made: Judgement) -> str:
    found = made.changes
    if found is None:
        return markdown(f"compared with {made.baseline}") if made.baseline else "no baseline"
    if found.is_none:
        return "no op moved, came or went"
    kinds = ("moved", "added", "removed", "reshaped")
    return ", ".join(f"{len(getattr(found, kind))} {kind}" for kind in kinds if getattr(found, kind))


def _are_several(judgements: list[Judgement]) -> bool:
    return len({made.verdict.path for made in judgements}) > 1


def _finding_head(judgements: list[Judgement]) -> str:
    named = ["package"] if _are_several(judgements) else []
    head = ["", *named, "chip", "finding", "why, and what to do"]
    return f"|{' |'.join(f' {word}' if word else '' for word in head)} |\n{'| --- ' * len(head)}|"


def _finding_rows(judgements: list[Judgement]) -> list[str]:
    """Return a row for each finding, with its package if there are several; equal ones of several chips share one."""
    chips: dict[tuple[str, str, str, str], list[str]] = {}
    several = _are_several(judgements)
    for made in judgements:
        for one in made.findings:
            where = f"{markdown(show_path(made.verdict.path))} | " if several else ""
            seen = chips.setdefault((_SIGNS[one.severity], where, markdown(one.what), markdown(describe(one))), [])
            if made.verdict.chip not in seen:
                seen.append(made.verdict.chip)
    return [
        f"| {sign} | {where}{', '.join(seen)} | {what} | {why} |" for (sign, where, what, why), seen in chips.items()
    ]
