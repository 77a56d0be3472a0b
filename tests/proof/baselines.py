"""`ane-sweep lint --baseline` on real changes, and on rebuilds that change nothing.

    python -m tests.proof.baselines      prints what lint says, and writes tests/proof/BASELINES.md; some ten minutes

Changes of axes are converted by sweeps of a small GPT-2 (tests/proof/rewrites.py), those of a net by coremltools from torch,
each in a process of its own. A rebuild has other weights, other names of values and another order of hashes.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
import yaml
from torch import Tensor, nn

import ane_sweep
from ane_sweep.__main__ import main as run_verb
from tests.proof import rewrites

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


class Net(nn.Module):
    """A classifier of images; `change` is what is done to it."""

    def __init__(self, change: str, salt: int):
        super().__init__()
        self.change = change
        torch.manual_seed(salt)
        count = 5 if change == "a layer less" else 6
        self.layers = nn.ModuleList(nn.Conv2d(3 if n == 0 else 48, 48, 3, padding=1) for n in range(count))
        self.long = nn.Conv2d(48, 48, (1, 41), padding=(0, 20))
        self.norm, self.head = nn.BatchNorm2d(48), nn.Linear(48, 100)

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if place == 3 and self.change == "an op that the Neural Engine lacks":
                x = torch.cumsum(x, dim=1)
            if place == 3 and self.change == "a kernel too long":
                x = self.long(x)
        made: Tensor = self.head(self.norm(x).mean(dim=(2, 3)))
        return torch.topk(made, 5).values if self.change == "the five best instead of all" else made


NETS = (
    "an op that the Neural Engine lacks", "a kernel too long", "a layer less", "the five best instead of all",
    "an input whose size may vary", "images of another size",
)  # fmt: skip


def write_net(path: Path, change: str, salt: int) -> None:
    """Convert the net of a change with random weights."""
    import coremltools as ct

    size = 96 if change == "images of another size" else 64
    trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # which carries no types
    traced = trace(Net(change, salt).eval(), torch.zeros(1, 3, size, size))
    side: object = ct.RangeDim(32, 128, default=64) if change == "an input whose size may vary" else size
    inputs = [ct.TensorType(f"image{'s' * (salt % 2)}", (1, 3, side, side))]
    ct.convert(traced, inputs=inputs, minimum_deployment_target=ct.target.iOS17).save(path)


def convert_apart(path: Path, change: str, salt: int = 0) -> Path:
    """Convert a net in a process of its own."""
    words = [sys.executable, "-m", "tests.proof.baselines", "--make", str(path), change, str(salt)]
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


def convert_axes(folder: Path) -> list[tuple[str, Path, Path]]:
    """Return (change, package before, package after) of the changes of axes."""
    (folder / "model").mkdir()
    option = rewrites.options()[MODEL]
    (folder / "model" / f"{MODEL}.yaml").write_text(yaml.safe_dump(option), encoding="utf-8")
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


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        pairs = convert_axes(folder)
        plain = convert_apart(folder / "plain.mlpackage", "nothing")
        pairs += [(name, plain, convert_apart(folder / f"{n}.mlpackage", name)) for n, name in enumerate(NETS)]
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
    table = [["what was changed", "exit code", "ops", "estimate", "what lint says"], ["---"] * 5, *rows]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    return (
        f"# What `lint --baseline` says of a change\n\nWritten by `python -m tests.proof.baselines`; predicted for {CHIP}. "
        f"{REBUILDS} rebuilds of one net in processes of their own, with other weights, names and hashes: {len(alarms)} alarms.\n\n"
        f"{body}\n"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        write_net(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main())
