"""ONNX files of others through model=onnx: nets and single ops that the package onnx ships, and nets exported here.

    python -m tests.proof.onnx_files     writes tests/proof/ONNX.md; needs the extra `onnx`, torchvision, onnxscript, skl2onnx

The files: onnx's own model tests (nine nets of its model zoo without their weights, 117 nets and ops of PyTorch's first
exporter, 23 written by hand), torchvision's, an encoder and an LSTM through both of PyTorch's exporters, scikit-learn
through skl2onnx. Every net is swept in fp16 (the zoo's in fp32) and compared with onnxruntime on the file; the ops of the
standard's node tests are compared as torch modules alone.
"""

import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper, version_converter

import ane_sweep
from ane_sweep.bridge import shapes
from ane_sweep.bridge.record import Record, worst_psnr
from ane_sweep.errors import AneSweepError
from ane_sweep.machine import host
from ane_sweep.planner import onnx_files, options
from ane_sweep.worker.models import _onnx_check
from ane_sweep.worker.models import onnx as door
from tests.proof.pages import format_table

TARGET = Path(__file__).with_name("ONNX.md")
SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
EVERY = 4  # of PyTorch's first exporter, so many files are left out between two that are swept
HEADS = ("file", "from", "result", "PSNR", "ops", "ANE ops (M4)", "why not")


def list_shipped() -> list[Path]:
    """Return the model files that the package onnx ships."""
    kinds = ("light/*.onnx", "pytorch-converted/*/model.onnx", "pytorch-operator/*/model.onnx", "simple/*/model.onnx")
    return [path for kind in kinds for path in sorted(SHIPPED.glob(kind))]


def export_nets(folder: Path) -> list[tuple[Path, str]]:
    """Export nets in a process of its own, and return each file and its exporter."""
    subprocess.run([sys.executable, "-m", "tests.proof.onnx_nets", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return [(folder / name, origin) for name, origin in json.loads((folder / "origins.json").read_text()).items()]


def sweep(path: Path, origin: str, folder: Path) -> list[str]:
    """Return a file's row of the table."""
    sizes = list_free_inputs(path)
    words = [f"'model.inputs={{{sizes}}}'"] if sizes else []
    words += (
        ["precision=fp32"] if path.parent.name == "light" else []
    )  # all weights of a layer are one number: fp16 overflows
    label = path.stem if path.stem != "model" else path.parent.name
    try:
        (record,) = ane_sweep.sweep(
            "model=onnx", f"model.path={path}", *words, f"latency=off chips=m4 tracking.enabled=false out={folder}/out"
        ).records
    except AneSweepError as error:
        return [label, origin, "refused", "-", "-", "-", " ".join(str(error).replace(str(path), "").split())[:200]]
    return [label, origin, *read(record, path)]


def read(record: Record, path: Path) -> list[str]:
    psnr, ops = worst_psnr(record), next((one.ops for one in record.placement if one.chip == "m4"), None)
    reason = "" if record.status == "ok" else " ".join((record.reason or "").replace(str(path), "").split())[:200]
    counts = ["-", "-"] if ops is None else [str(ops.total), str(ops.ane)]
    return [record.status, "-" if psnr is None else f"{psnr:.1f} dB", *counts, reason]


def list_free_inputs(path: Path) -> str:
    """Return sizes for inputs with free axes, 1 for each of these, as model.inputs takes them."""
    model = onnx.load(path, load_external_data=False)
    held = {one.name for one in model.graph.initializer}
    found = []
    for value in model.graph.input:
        dims = [one.dim_value for one in value.type.tensor_type.shape.dim]
        if value.name not in held and not all(dims):
            found.append(f"{value.name}: {[size or 1 for size in dims]}")
    return ", ".join(found)


def check_ops() -> Counter[str]:
    """Return how the standard's node tests end as torch modules: equal, refused in the plan or at conversion, different."""
    from onnx.backend.test.case.node import collect_testcases

    found: Counter[str] = Counter()
    shipped, folder = options.shipped("model", "onnx"), Path(tempfile.mkdtemp())
    for case in {one.name: one for one in collect_testcases(None)}.values():
        if (
            case.model is None
            or not case.data_sets
            or any(not isinstance(one, np.ndarray) for one in case.data_sets[0][0])
        ):
            continue
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        try:
            model = version_converter.convert_version(model, 21) if model.opset_import[0].version > 21 else model
        except RuntimeError:  # an op that opset 21 does not have
            found["of a newer opset"] += 1
            continue
        inputs = dict(zip([one.name for one in model.graph.input], case.data_sets[0][0]))
        first = next(iter(inputs), "")
        held = {
            name for name, value in inputs.items() if name != first and (value.dtype.kind in "iub" or value.ndim <= 1)
        }
        model.graph.initializer.extend(numpy_helper.from_array(inputs[name], name) for name in held)
        path = folder / "op.onnx"
        onnx.save(model, path)
        found[check(path, shipped, [value for name, value in inputs.items() if name not in held])] += 1
    return found


def check(path: Path, shipped: dict[str, object], values: list[np.ndarray]) -> str:
    """Return how one op ends."""
    try:
        source = onnx_files.resolve({**shipped, "path": str(path)}, "pretrained", 0, path.with_suffix(".json"))
    except AneSweepError:
        return "refused in the plan"
    try:
        inner, folded = door.convert(path, shapes.read(source.arch["inputs"]))
        given = [
            torch.from_numpy(np.ascontiguousarray(one.astype("f4") if one.dtype.kind == "f" else one)) for one in values
        ]
        inner(*given)
    except Exception:  # onnx2torch's, onnxruntime's and torch's own: a cell of it fails with these words
        return "refused at conversion"
    try:
        _onnx_check.compare(folded, inner.net, given)
    except AneSweepError:
        return "computed wrongly by onnx2torch, and refused with its node"
    except Exception:
        return "not run by onnxruntime"
    return "equal to onnxruntime"


def main() -> int:
    warnings.simplefilter("ignore")
    shipped = list_shipped()
    light = [path for path in shipped if path.parent.name == "light"]
    others = [path for path in shipped if path not in light]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = [*((path, "onnx's model zoo") for path in light), *export_nets(Path(folder))]
        for path, origin in [*files, *((path, path.parent.parent.name) for path in others[::EVERY])]:
            rows.append(sweep(path, origin, Path(folder)))
            print(*rows[-1], sep=" | ", flush=True)
    TARGET.write_text(write_page(rows, check_ops()), encoding="utf-8")
    return 0


def write_page(rows: list[list[str]], ops: Counter[str]) -> str:
    """Return the page."""
    tools = ", ".join(
        f"{name} {host.version_of(name)}" for name in ("onnx", "onnx2torch", "onnxruntime", "coremltools", "torch")
    )
    results = Counter(row[2] for row in rows)
    counted = ", ".join(f"{count} {result}" for result, count in results.most_common())
    head = (
        f"# ONNX files of others\n\nWritten by `python -m tests.proof.onnx_files` on Linux with {tools}. Each file in fp16, the zoo's "
        f"in fp32, compared with onnxruntime on the file; placement predicted. {len(rows)} files: {counted}.\n\n"
    )
    second = "\n## The ops of the standard\n\nonnx's node tests, as torch modules in fp32 beside onnxruntime on the same graph:\n\n"
    table = format_table(("result", "ops"), [[result, str(count)] for result, count in ops.most_common()])
    return f"{head}{format_table(HEADS, rows)}\n{second}{table}\n"


if __name__ == "__main__":
    sys.exit(main())
