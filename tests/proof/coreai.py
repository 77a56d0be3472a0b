"""One model, two toolchains: every family at its tiny size and three nets of tests/grow/strangers.py, in fp32 and fp16;
and four families with weights of the same codes.

    python -m tests.proof.coreai [NAME ...]    prints the tables and writes tests/proof/COREAI.md; needs the extra `coreai`

Core ML's programs run in the reference runtime, Core AI's assets in Apple's own CPU runtime: both against torch in fp32.
"""

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import ane_sweep
from ane_sweep import tables
from ane_sweep.bridge.record import Record, worst_psnr
from ane_sweep.machine import host
from tests.bench import families
from tests.grow import strangers
from tests.proof.pages import format_table, write_options

TARGET = Path(__file__).with_name("COREAI.md")
NETS = tuple(strangers.GROWN)[:3]
HEADS = ("net", "precision", "toolchain", "PSNR", "size", "conversion", "its memory", "why not")
CODED = ("tiny-bert", "tiny-gpt2", "tiny-vit", "tiny-whisper")
CODES = "int8_channel,int4_block32,p6,p4,p4_g16_scaled,sparse50,fp8,fp4"
CODED_BY = {
    ("coreml", "ane_sweep"): "Core ML, ours", ("coreml", "coreai_opt"): "Core ML, coreai-opt",
    ("coreai", "coreai_opt"): "Core AI, coreai-opt",
}  # fmt: skip
COMMON = "toolchain=coreml,coreai precision=fp32,fp16 latency=off chips=m4 tracking.enabled=false"


def read_row(net: str, record: Record) -> list[str]:
    """Return one cell's row of the table."""
    psnr, size = worst_psnr(record), record.value("package_bytes")
    convert = next((stage for stage in record.stages if stage.stage == "convert"), None)
    failed = next(
        (stage for stage in record.stages if stage.reason and stage.status not in ("unavailable", "skipped")), None
    )
    return [
        net, str(record.cell["precision"]), str(record.cell["toolchain"]),
        "-" if psnr is None else f"{psnr:.1f} dB", "-" if size is None else f"{size / 1e3:.0f} KB",
        f"{convert.seconds:.1f} s" if convert and convert.seconds else "-",
        f"{convert.peak_bytes / 2**20:.0f} MiB" if convert and convert.peak_bytes else "-",
        "" if psnr is not None else (failed.reason if failed and failed.reason else record.reason or "")[:300],
    ]  # fmt: skip


def sweep_families(names: Sequence[str], folder: Path) -> Iterable[tuple[str, list[Record]]]:
    """Yield each family's cells."""
    wanted = {option["name"]: option for option in families.tiny_options() if not names or option["name"] in names}
    write_options(folder, wanted)
    if wanted:
        words = f"--config-dir {folder} model={','.join(wanted)} weights=random seq_len=16 model.texts.count=2"
        found = ane_sweep.sweep(f"{words} {COMMON} out={folder}/out")
        for name in wanted:
            yield name, [one for one in found.records if one.cell["model"] == name]


def sweep_nets(names: Sequence[str], folder: Path) -> Iterable[tuple[str, list[Record]]]:
    """Yield each net's cells."""
    for name in NETS:
        if names and name not in names:
            continue
        path, shape = folder / f"net_{name}.py", ",".join(map(str, strangers.shape(name)))
        path.write_text(f"from tests.grow import strangers\n\n\ndef net():\n    return strangers.made({name!r})\n")
        found = ane_sweep.sweep(
            f"model=module model.path={path}:net 'model.inputs={{x:[{shape}]}}' {COMMON} out={folder}/out"
        )
        yield name, found.records


def list_codes(names: Sequence[str], folder: Path) -> list[list[str]]:
    """Return a row for each net and recipe: PSNR and size through both compressors and both toolchains."""
    wanted = [name for name in CODED if not names or name in names]
    if not wanted:
        return []
    found = ane_sweep.sweep(
        f"model={','.join(wanted)} weights=random seq_len=16 model.texts.count=2 precision={CODES} toolchain=coreml,coreai "
        f"compressor=ane_sweep,coreai_opt latency=off chips=m4 tracking.enabled=false out={folder}/out"
    )
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for record in found.records:
        cell = {name: str(record.cell[name]) for name in ("model", "precision", "toolchain", "compressor")}
        if by := CODED_BY.get((cell["toolchain"], cell["compressor"])):
            psnr, size = worst_psnr(record), record.value("package_bytes")
            text = "-" if psnr is None or size is None else f"{psnr:.1f} dB, {size / 1e3:.0f} KB"
            cells.setdefault((cell["model"], cell["precision"]), {})[by] = text
    return [[*key, *(row.get(by, "-") for by in CODED_BY.values())] for key, row in cells.items()]


def main(names: Sequence[str]) -> int:
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as made:
        for sweep in (sweep_families, sweep_nets):
            for net, records in sweep(names, Path(made)):
                new = [read_row(net, record) for record in records]
                rows += new
                print(tables.aligned(new), flush=True)
        codes = list_codes(names, Path(made))
        print(tables.aligned(codes), flush=True)
    if not names:
        TARGET.write_text(write_page(rows, codes), encoding="utf-8")
    return 0


def write_page(rows: Sequence[Sequence[str]], codes: Sequence[Sequence[str]]) -> str:
    """Return the page of both tables."""
    tools = ", ".join(
        f"{name} {host.version_of(name)}"
        for name in ("coremltools", "coreai-core", "coreai-opt", "coreai-torch", "torch")
    )
    done = {(row[0], row[1]) for row in rows if row[2] == "coreai" and row[3] != "-"}
    asked = {(row[0], row[1]) for row in rows}
    head = (
        f"# One model, two toolchains\n\nWritten by `python -m tests.proof.coreai` on Linux with {tools}. Random weights. Core ML's "
        "program runs in the reference runtime, Core AI's asset in Apple's CPU runtime, both against torch in fp32. Sizes are those of the "
        "whole package or asset; a tiny model's is mostly its program. Core AI: "
        f"{len(done)} of {len(asked)} converted and scored.\n\n"
    )
    second = (
        "\n## The same codes\n\nRecipes of weights in fp16 programs, by our compressor (of the program) and by coreai-opt (of the torch "
        "model, whose codes both converters take). `-`: refused or not converted; `ane-sweep plan` says why.\n\n"
    )
    table = format_table(("net", "precision", *CODED_BY.values()), codes)
    return head + format_table(HEADS, rows) + "\n" + second + table + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
