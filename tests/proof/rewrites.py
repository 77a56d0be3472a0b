"""Rewritten programs beside the originals and hand-written split_einsum, over every family and the nets that nobody here wrote.

    python -m tests.proof.rewrites [NAME ...]      prints the table and writes tests/proof/REWRITES.md; about half an hour

Families are small but not tiny: their miniatures with every width WIDER times as large, random weights, two layers. Each is
swept by `variant` and `rewrite` as a user would; ops, cost share, segments and latency are predicted for CHIP, and PSNR is the
fp16 program in the reference runtime against torch in fp32. Nets of one's own (tests/grow/strangers.py, and WIDE of
tests/proof/order.py) have no split_einsum.
"""

import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ane_sweep
from ane_sweep import tables
from ane_sweep.bridge.record import Record, worst_psnr
from ane_sweep.planner.options import shipped
from tests.bench import families
from tests.grow import strangers
from tests.proof import order
from tests.proof.pages import format_table, write_options

CHIP, SEQ_LEN, WIDER = "m4", 128, 6
WIDTHS = {
    "block_out_channels", "cross_attention_dim", "d_ff", "d_kv", "d_model", "dim", "embed_dim", "encoder_ffn_dim", "ffn_dim",
    "head_dim", "hidden_dim", "hidden_size", "hidden_sizes", "image_size", "intermediate_size", "max_source_positions", "n_embd",
    "projection_dim", "rotary_dim", "sample_size", "vocab_size", "word_embed_proj_dim",
}  # fmt: skip
OWN = {"unet-tiny": 2, "tiny-whisper": 6, "tiny-convnext": 4}  # times; the others WIDER
WHY = {  # what the figures of a net that is behind do not say by themselves
    "small-clip-text": "split_einsum makes nothing of the Neural Engine there: the CPU is estimated to be faster for a net this small"
}
TARGET = Path(__file__).with_name("REWRITES.md")
HEADS = ("net", "cell", "ops on the ANE", "cost there", "segments", "estimate", "PSNR", "rewrites applied", "status")


def widen(value: object, times: int, key: str = "") -> object:
    """Return an architecture with every width of WIDTHS multiplied."""
    if isinstance(value, dict):
        return {name: widen(one, times, name) for name, one in value.items()}
    if isinstance(value, list):
        return [widen(one, times, key) for one in value]
    return value * times if key in WIDTHS and isinstance(value, int) else value


def options() -> dict[str, dict[str, object]]:
    """Return the widened options by name, one of each family's tiny sizes."""
    found = {}
    for option in [*families.tiny_options(), shipped("model", "unet-tiny")]:
        times, name = OWN.get(option["name"], WIDER), option["name"].replace("tiny", "small")
        arch, parameters = widen(option["arch"], times), option["parameters"] * times**2
        found[name] = {**option, "name": name, "arch": arch, "parameters": parameters}
    return found


@dataclass(frozen=True)
class Figures:
    """The figures of one cell."""

    on_ane: float
    ops: float
    share: float
    segments: float
    estimate: float | None
    psnr: float | None

    @classmethod
    def of(cls, record: Record) -> "Figures":
        """Read the figures of a record that has a prediction."""
        names = ("ops_ane", "ops_total", "cost_share_ane", "segments")
        on_ane, ops, share, segments = (record.value(name, "predicted", CHIP) or 0.0 for name in names)
        estimate = record.value("latency_ms", "estimated", CHIP)
        return cls(on_ane, ops, share, segments, estimate, worst_psnr(record))

    def texts(self) -> list[str]:
        """Return the columns of the table."""
        return [
            f"{self.on_ane:.0f} of {self.ops:.0f}", f"{self.share:.1%}", f"{self.segments:.0f}",
            "-" if self.estimate is None else f"{self.estimate:.3g} ms", "-" if self.psnr is None else f"{self.psnr:.1f} dB",
        ]  # fmt: skip

    def is_no_worse(self, other: "Figures") -> bool:
        """Return True if a program would run no slower than another one, nor lose 1 dB."""
        accurate = self.psnr is None or other.psnr is None or self.psnr > other.psnr - 1
        if self.estimate is not None and other.estimate is not None:
            return accurate and self.estimate <= 1.01 * other.estimate
        return accurate and (self.share, -self.segments) >= (other.share, -other.segments)


def name_cell(record: Record) -> str:
    words = [
        str(record.cell["variant"]),
        *([f"rewrite={record.cell['rewrite']}"] if record.cell["rewrite"] != "none" else []),
    ]
    return " + ".join(words)


def list_applied(record: Record) -> str:
    done = record.realised.get("rewrites")
    return ", ".join(f"{one['name']} x{one['places']}" for one in done["applied"]) if done else ""


def sweep_families(names: Sequence[str], folder: Path) -> Iterable[tuple[str, list[Record]]]:
    """Yield each family's three cells, of one sweep."""
    wanted = {name: option for name, option in options().items() if not names or name in names}
    if not wanted:
        return
    write_options(folder, wanted)
    found = ane_sweep.sweep(
        f"--config-dir {folder} model={','.join(wanted)} weights=random seq_len={SEQ_LEN} model.texts.count=16 latency=off "
        f"variant=original,split_einsum rewrite=none,ane runtime=reference chips={CHIP} tracking.enabled=false out={folder}/out"
    )
    for name in wanted:
        records = [one for one in found.records if one.cell["model"] == name]
        yield name, [one for one in records if (one.cell["variant"], one.cell["rewrite"]) != ("split_einsum", "ane")]


def sweep_strangers(names: Sequence[str], folder: Path) -> Iterable[tuple[str, list[Record]]]:
    """Yield the two cells of each net that is no family's."""
    made = {name: (f"strangers.made({name!r})", strangers.shape(name)) for name in strangers.GROWN}
    made |= {name: (f"order.WIDE[{name!r}][0]()", list(shape)) for name, (_, shape) in order.WIDE.items()}
    for name, (call, sizes) in made.items():
        if names and name not in names:
            continue
        text = f"from tests.grow import strangers\nfrom tests.proof import order\n\n\ndef net():\n    return {call}\n"
        (folder / f"net_{name}.py").write_text(text, encoding="utf-8")
        shape = ",".join(map(str, sizes))
        found = ane_sweep.sweep(
            f"model=module model.path={folder}/net_{name}.py:net 'model.inputs={{x:[{shape}]}}' rewrite=none,ane latency=off "
            f"runtime=reference chips={CHIP} tracking.enabled=false out={folder}/out"
        )
        yield name, found.records


def rows_of(net: str, records: Sequence[Record]) -> list[list[str]]:
    rows = []
    for record in records:
        texts = Figures.of(record).texts() if record.value("ops_total", "predicted", CHIP) else ["-"] * 5
        reason = f": {record.reason[:100]}" if record.status not in ("ok", "degraded") and record.reason else ""
        rows.append([net, name_cell(record), *texts, list_applied(record), f"{record.status}{reason}"])
    return rows


def judge(records: Sequence[Record]) -> str:
    """Return how the rewritten program stands beside split_einsum, or beside the original if there is none."""
    known = {name_cell(one): Figures.of(one) for one in records if one.value("ops_total", "predicted", CHIP)}
    fixed, yardstick = known.get("original + rewrite=ane"), known.get("split_einsum")
    if fixed is None:
        return "has no figures"
    if yardstick is not None:
        return "at least as good as split_einsum" if fixed.is_no_worse(yardstick) else "behind split_einsum"
    return "at least as good as the original" if fixed.is_no_worse(known["original"]) else "behind the original"


def explain(net: str, records: Sequence[Record]) -> list[str]:
    """Return in which figures a rewritten program is behind split_einsum, and the original's own."""
    known = {name_cell(one): Figures.of(one) for one in records if one.value("ops_total", "predicted", CHIP)}
    fixed, yardstick, original = (
        known[name].texts() for name in ("original + rewrite=ane", "split_einsum", "original")
    )
    differs = [
        f"{head} {fixed[place]} against {yardstick[place]} (original {original[place]})"
        for place, head in enumerate(HEADS[2:7])
        if head in ("estimate", "PSNR") and fixed[place] != yardstick[place]
    ]
    return [f"{net}: {'; '.join(differs)}{'; ' + WHY[net] if net in WHY else ''}"]


def main(names: Sequence[str]) -> int:
    rows: list[list[str]] = []
    verdicts: dict[str, list[str]] = {}
    behind: list[str] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for sweep in (sweep_families, sweep_strangers):
            for net, records in sweep(names, folder):
                new = rows_of(net, records)
                rows += new
                verdicts.setdefault(verdict := judge(records), []).append(net)
                if verdict == "behind split_einsum":
                    behind += explain(net, records)
                print(tables.aligned(new), flush=True)
    lines = [f"{verdict} ({len(nets)}): {', '.join(nets)}" for verdict, nets in verdicts.items()] + behind
    print("\n".join(lines))
    if not names:
        TARGET.write_text(write_page(lines, rows), encoding="utf-8")
    return 0


def write_page(lines: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the page of all rows."""
    head = (
        "# Rewritten programs beside split_einsum\n\n"
        f"Written by `python -m tests.proof.rewrites`. Predicted and estimated for {CHIP}, nothing was measured on a chip; random weights. "
        f"At least as good: the estimate within 1 % (without one, cost share, then segments), and PSNR within 1 dB.\n\n"
    )
    return head + "\n".join(f"- {line}" for line in lines) + f"\n\n{format_table(HEADS, rows)}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
