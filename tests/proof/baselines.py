"""`ane-sweep lint --baseline` on real changes, and on rebuilds that change nothing.

    python -m tests.proof.baselines PYTHON   prints what lint says, and writes tests/proof/BASELINES.md; some ten minutes

PYTHON is an interpreter with an older coremltools, for the change of the converter's version.

Changes of axes are converted by sweeps of a small GPT-2 (tests/proof/rewrites.py), those of a net by coremltools from torch,
each in a process of its own. A rebuild has other weights, other names of values and another order of hashes.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import coremltools as ct

import ane_sweep
from ane_sweep.__main__ import main as run_verb
from tests.proof import baseline_nets, rewrites
from tests.proof.baseline_nets import NETS, OF_VERSIONS
from tests.proof.pages import format_table, write_options

MODEL, CHIP, REBUILDS = "small-gpt2", "m4", 30
TARGET = Path(__file__).with_name("BASELINES.md")
AXES = {  # what was changed: the axes before and after
    "the Neural Engine's form of the model": ("variant=original", "variant=split_einsum"),
    "a wider mask": ("mask_dtype=fp16", "mask_dtype=fp32"),
    "another target OS": ("target=iOS16", "target=iOS18"),
    "compressed weights": ("precision=fp16", "precision=p4"),
    "fp32 instead of fp16": ("precision=fp16", "precision=fp32"),
    "a longer input": ("seq_len=128", "seq_len=512"),
    "logits of the last position alone": ("head=all", "head=last"),
    "a cache kept as states": ("cache=none", "cache=stateful"),
    "two inputs at once": ("batch=1", "batch=2"),
    "the program rewritten": ("rewrite=none", "rewrite=ane"),
}


def convert_apart(path: Path, change: str, salt: int = 0, python: str = sys.executable) -> Path:
    """Convert a net in a process of its own."""
    words = [python, str(Path(baseline_nets.__file__)), str(path), change, str(salt)]
    subprocess.run(words, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": str(salt)})
    return path


def compare(before: Path, after: Path) -> tuple[int, dict[str, object]]:
    """Return the exit code of lint with a baseline, and what it says of the one package in JSON."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        code = run_verb(["lint", str(after), "--baseline", str(before), "--chip", CHIP, "--json"])
    found: dict[str, object] = json.loads(out.getvalue())["packages"][0]
    return code, found


def tell(code: int, found: dict[str, object]) -> list[str]:
    """Return the exit code, the counts of ops by what became of them, the estimates, and the first finding of a baseline."""
    changes, estimate = found["baseline"], found["estimate"]
    assert isinstance(changes, dict)
    counts = [f"{len(changes[kind])} {kind}" for kind in ("moved", "reshaped", "added", "removed") if changes[kind]]
    now = f"{estimate['latency_ms']:.3g}" if isinstance(estimate, dict) else "-"
    was = f"{changes['latency_ms']:.3g}" if changes["latency_ms"] is not None else "-"
    findings = found["findings"]
    assert isinstance(findings, list)
    said = [str(one["what"]) for one in findings if str(one["rule"]).startswith("baseline/")]
    return [str(code), ", ".join(counts) or "nothing", f"{was} -> {now} ms", "; ".join(said)[:240] or "-"]


def read_version(package: Path) -> str:
    """Return the version of coremltools that a package was converted by."""
    return str(
        ct.utils.load_spec(str(package)).description.metadata.userDefined["com.github.apple.coremltools.version"]
    )


def convert_axes(folder: Path) -> list[tuple[str, Path, Path]]:
    """Return (change, package before, package after) of the changes of axes."""
    write_options(folder, {MODEL: rewrites.options()[MODEL]})
    made: list[tuple[str, Path, Path]] = []
    for number, (change, words) in enumerate(AXES.items()):
        name = words[0].partition("=")[0]
        common = f"--config-dir {folder} model={MODEL} weights=random latency=off runtime=reference chips={CHIP} out={folder}/out"
        values = ",".join(word.partition("=")[2] for word in words)
        sweep = ane_sweep.sweep(f"{common} tracking.enabled=false model.texts.count=1 {name}={values}")
        before, after = (
            ane_sweep.get(f"{sweep.path.name}:{word}", folder / f"{number}.{side}", out=folder / "out")[-1]
            for side, word in enumerate(words)
        )
        made.append((change, before, after))
    return made


def main(older: str) -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        pairs = convert_axes(folder)
        plain = convert_apart(folder / "plain.mlpackage", "nothing")
        pairs += [(name, plain, convert_apart(folder / f"{n}.mlpackage", name)) for n, name in enumerate(NETS)]
        first = convert_apart(folder / "older.mlpackage", OF_VERSIONS, python=older)
        then = convert_apart(folder / "newer.mlpackage", OF_VERSIONS)
        pairs.append((f"{OF_VERSIONS} ({read_version(first)} to {read_version(then)})", first, then))
        rows = []
        for change, before, after in pairs:
            rows.append([change, *tell(*compare(before, after))])
            print(" | ".join(rows[-1]), flush=True)
        alarms = []
        for salt in range(1, REBUILDS + 1):
            told = tell(*compare(plain, convert_apart(folder / f"again{salt}.mlpackage", "nothing", salt)))
            alarms += [f"{salt}: {told}"] if told[:2] != ["0", "nothing"] else []
    print(f"{REBUILDS} rebuilds, {len(alarms)} alarms", *alarms, sep="\n")
    TARGET.write_text(write_page(rows, alarms), encoding="utf-8")
    return int(bool(alarms))


def write_page(rows: Sequence[Sequence[str]], alarms: Sequence[str]) -> str:
    """Return the page of all changes."""
    heads = ["what was changed", "exit code", "ops", "estimate", "what lint says"]
    return (
        f"# What `lint --baseline` says of a change\n\nWritten by `python -m tests.proof.baselines`; predicted for {CHIP}. "
        f"{REBUILDS} rebuilds of one net in processes of their own, with other weights, names and hashes: {len(alarms)} alarms.\n\n"
        f"{format_table(heads, rows)}\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
