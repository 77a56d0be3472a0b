"""Annotations of GitHub Actions: one workflow command a finding. GitHub shows ten of a kind a step, so errors stand first."""

from pathlib import Path

from ane_sweep.ci.formats.places import describe, describe_title, find_place, show_path
from ane_sweep.ci.judgement import Judgement, Unread
from ane_sweep.outward import make_public

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_OF_PROPERTIES = {":": "%3A", ",": "%2C"}


def write(judgements: list[Judgement], unread: list[Unread]) -> str:
    """Return the annotations: packages that could not be read, then all findings."""
    lines = [
        _command("error", make_public(one.error), file=show_path(Path(one.path)), line="1", title="unreadable")
        for one in unread
    ]
    for made in judgements:
        for finding in made.findings:
            file, line = find_place(made, finding)
            title = describe_title(made, finding)
            lines.append(
                _command(_COMMANDS[finding.severity], describe(finding), file=file, line=str(line), title=title)
            )
    return "\n".join(lines)


def _command(name: str, message: str, **properties: str) -> str:
    shown = ",".join(f"{key}={_escape(_escape(value, _ESCAPES), _OF_PROPERTIES)}" for key, value in properties.items())
    return f"::{name} {shown}::{_escape(message, _ESCAPES)}"


def _escape(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
