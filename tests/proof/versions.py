"""Ten nets of three kinds through versions of coremltools: what converts, to how many ops, how accurately, and what stays on the ANE.

python -m tests.proof.versions        prints the table and writes tests/proof/VERSIONS.md; some ten minutes, and a network
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import ane_sweep
from ane_sweep import tables
from ane_sweep.bridge.record import Record, worst_psnr
from tests.proof.pages import format_table

CHIP, VERSIONS = "m4", ("8.0", "8.1", "8.3.0", "9.0")
FAMILIES = "tiny-gpt2,tiny-bert,tiny-t5,unet-tiny"
TARGET = Path(__file__).with_name("VERSIONS.md")
HEADS = ("net", "converter", "ops on the ANE", "estimate", "PSNR", "size", "why not")


class Norm(nn.Module):
    """torch.nn.RMSNorm, whose epsilon coremltools 9.0 converts wrongly (coremltools#2821)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(64, eps=0.1)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(x)
        return made


class Lookup(nn.Module):
    """An embedding and four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(100, 256), nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.layers(self.table(ids))
        return made


class Pooled(nn.Module):
    """Convolutions with a window that is not square, and interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.after = nn.Conv2d(3, 16, (3, 5), padding=(1, 2)), nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.interpolate(torch.relu(self.conv(x)), scale_factor=2, mode="bilinear")
        made: Tensor = self.after(nn.functional.adaptive_avg_pool2d(y, 4))
        return made


class Angles(nn.Module):
    """atan2, roll and narrow, which 9.0 is known to have converted wrongly for some arguments."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.atan2(x, x.roll(1, dims=-1)).narrow(1, 1, 4)


MODULES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "Norm": (Norm, "x: [1,16,64]"),
    "Lookup": (Lookup, "ids: {shape: [1,32], dtype: int64, range: [0,100]}"),
    "Pooled": (Pooled, "x: [1,3,32,32]"),
    "Angles": (Angles, "x: [1,8,16]"),
}
SCRIPTED = {"scripted Lookup": "Lookup", "scripted Pooled": "Pooled"}


def read_row(net: str, record: Record) -> list[str]:
    """Return one cell's row of the table."""
    psnr, size = worst_psnr(record), record.value("package_bytes")
    estimate = record.value("latency_ms", "estimated", CHIP)
    on_ane, ops = (record.value(name, "predicted", CHIP) for name in ("ops_ane", "ops_total"))
    return [
        net, str(record.cell["converter"]), f"{on_ane:.0f} of {ops:.0f}" if ops else "-",
        "-" if estimate is None else f"{estimate:.3g} ms", "-" if psnr is None else f"{psnr:.1f} dB",
        "-" if size is None else f"{size / 1e3:.0f} KB", "" if record.status == "ok" else (record.reason or "")[:240],
    ]  # fmt: skip


def sweep_all(folder: Path) -> Iterable[tuple[str, list[Record]]]:
    """Yield each net's cells."""
    common = f"converter={','.join(VERSIONS)} latency=off chips={CHIP} tracking.enabled=false out={folder}/out"
    found = ane_sweep.sweep(f"model={FAMILIES} weights=random seq_len=16 model.texts.count=2 {common}")
    for name in FAMILIES.split(","):
        yield name, [one for one in found.records if one.cell["model"] == name]
    for name, (_, inputs) in MODULES.items():
        found = ane_sweep.sweep(f"model=module model.path={__file__}:{name} 'model.inputs={{{inputs}}}' {common}")
        yield name, found.records
    trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # which carries no types
    for name, net in SCRIPTED.items():
        make, inputs = MODULES[net]
        example = torch.zeros(1, 32, dtype=torch.int64) if net == "Lookup" else torch.zeros(1, 3, 32, 32)
        trace(make().eval(), example).save(folder / f"{net}.pt")
        found = ane_sweep.sweep(f"model=exported model.path={folder}/{net}.pt 'model.inputs={{{inputs}}}' {common}")
        yield name, found.records


def main() -> int:
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as made:
        for net, records in sweep_all(Path(made)):
            new = [read_row(net, record) for record in records]
            rows += new
            print(tables.aligned(new), flush=True)
    TARGET.write_text(write_page(rows), encoding="utf-8")
    return 0


def write_page(rows: Sequence[Sequence[str]]) -> str:
    """Return the page of all rows."""
    head = (
        f"# Versions of the converter\n\nWritten by `python -m tests.proof.versions` with torch {torch.__version__}. Ops and estimates are "
        f"predicted for {CHIP}, PSNR is the fp16 program in the reference runtime against torch in fp32; random weights, target iOS18.\n\n"
    )
    return head + format_table(HEADS, rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
