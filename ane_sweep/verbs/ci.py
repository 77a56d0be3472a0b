"""`ane-sweep ci write github [PACKAGE...]`: a workflow that lints packages on every pull request"""

from pathlib import Path

from ane_sweep.bridge.disk import open_user_file
from ane_sweep.ci import workflow
from ane_sweep.errors import ConfigError
from ane_sweep.folders import user_path
from ane_sweep.terminal import print_result
from ane_sweep.words import Parser

TARGET = ".github/workflows/neural-engine.yml"


def ci(args: list[str]) -> int:
    """Write a workflow for hosted CI. Raises ConfigError for a wrong word, or a file that is there already."""
    parser = Parser(
        "ci write github [PACKAGE...] [--chip m4,a17_pro] [--action OWNER/REPO/PATH@REF] [--to FILE] [--json]",
        "A workflow for GitHub Actions that lints Core ML packages on every pull request against its base branch: "
        "annotations, code scanning, and one comment that is kept up to date. It needs no Mac.",
        "ane-sweep ci write github 'models/*.mlpackage' --chip m4,a17_pro",
    )
    parser.add("what write", "write it", choices=("write",))
    parser.add("system github", "for GitHub Actions", choices=("github",))
    parser.add("packages PACKAGE", "paths or globs in the repository (default: every .mlpackage)", nargs="*")
    parser.add("--chip NAME,...", "chips to predict for, or all", default="m4")
    parser.add("--action OWNER/REPO/PATH@REF", "the repository that has ane-sweep's action", default=workflow.ACTION)
    parser.add("--to FILE", "where the workflow is written; - prints it", default=TARGET)
    parser.json("file, next", "a line")
    given = parser.read(args)
    if given.json and given.to == "-":
        raise ConfigError("--json and --to -: one of them goes to standard output; give --to a file")
    text = workflow.render(given.packages, given.chip, given.action)
    if given.to == "-":
        print(text, end="")
        return 0
    target = user_path(given.to)
    _write(target, text)
    hint = "commit it, and open a pull request that changes a package"
    if given.action == workflow.ACTION:
        hint = f"put the owner of ane-sweep's repository in place of OWNER in `uses:` (or give --action); then {hint}"
    return print_result(given.json, f"{target}: written; {hint}", file=str(target), next=hint)


def _write(target: Path, text: str) -> None:
    if target.exists():
        raise ConfigError(f"{target}: is there already; delete it, or write elsewhere with --to FILE")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_user_file(target) as aside:
            aside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written ({error.strerror}); name another with --to FILE") from error
