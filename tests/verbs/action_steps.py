"""Run the `run` steps of a composite action as a hosted runner does, without one; steps with `uses` are left out.

python action_steps.py ACTION.yml NAME=VALUE ...     in the folder of the repository; prints outputs and summary
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


@dataclass(frozen=True)
class Outcome:
    """What an action left: the exit code of the last step that ran, the action's outputs, the job's summary, what was printed."""

    code: int
    outputs: Mapping[str, str]
    summary: str
    printed: str


def run_action(
    action: Path, given: Mapping[str, str], *, folder: Path, temporary: Path, skip: tuple[str, ...] = ()
) -> Outcome:
    """Run the steps in order until one fails. `skip` are names of steps to leave out.

    Facts of the runner (GitHub's "Metadata syntax" and "Variables"): inputs that are not given have their default; bash runs
    with -eo pipefail; outputs are lines NAME=VALUE in the file $GITHUB_OUTPUT.
    """
    described = yaml.safe_load(action.read_text(encoding="utf-8"))
    values = {f"inputs.{name}": given.get(name, one.get("default", "")) for name, one in described["inputs"].items()}
    assert set(given) <= set(described["inputs"]), f"inputs: {', '.join(described['inputs'])}"
    values["github.action_path"] = str(action.parent.resolve())
    output, summary = temporary / "output", temporary / "summary"
    printed, code = "", 0
    for step in described["runs"]["steps"]:
        if "run" not in step or step.get("name") in skip:
            continue
        output.write_text("")
        summary.touch()
        env = {name: _fill(str(value), values) for name, value in step["env"].items()}
        runner = {"RUNNER_TEMP": temporary, "GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": summary}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env=os.environ | env | {name: str(path) for name, path in runner.items()},
            cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        printed, code = printed + done.stdout, done.returncode
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step.get('id')}.outputs.{name}"] = value
        if code:
            break
    outputs = {name: _fill(one["value"], values) for name, one in described["outputs"].items()}
    return Outcome(code, outputs, summary.read_text(), printed)


def _fill(text: str, values: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: values.get(found[1], ""), text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asked = dict(word.split("=", 1) for word in sys.argv[2:])
        outcome = run_action(Path(sys.argv[1]), asked, folder=Path.cwd(), temporary=Path(made))
        sizes = {name: Path(path).stat().st_size for name, path in outcome.outputs.items() if Path(path).is_file()}
        print(
            outcome.printed, dict(outcome.outputs), sizes, outcome.summary, f"exit code {outcome.code}", sep="\n---\n"
        )
    sys.exit(outcome.code)
