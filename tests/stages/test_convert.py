"""Real conversions of tiny models: what the programs hold, that they compute what torch computes, and that the lean
conversion is coremltools' own, bit for bit."""

import inspect
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ane_sweep.bridge import building
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.mil.package import read
from ane_sweep.planner import options
from ane_sweep.stats.psnr import psnr_db
from ane_sweep.worker.models import _build
from ane_sweep.worker.programs.mlprogram import convert as coremltools_convert
from ane_sweep.worker.programs.mlprogram import shortcuts
from ane_sweep.worker.programs.mlprogram import size as packages
from ane_sweep.worker.stages import compile as compile_stage
from ane_sweep.worker.stages import convert, place, reference

CONF = Path(__file__).parents[2] / "conf" / "model"
RANDOM = {"kind": "random", "digest": "random:0", "seed": 0}
LAYERS, HEADS, SEQ = 2, 4, 16


def task(name: str, variant: str, compute: str, target: str = "iOS17") -> dict:
    loaded = options.shipped("model", name)
    model = {key: loaded[key] for key in ("family", "task", "arch")}
    return {"model": model, "weights": RANDOM, "variant": variant, "seq_len": SEQ, "target": target, "compute": compute}


CASES = [
    (name, variant, compute)
    for name in ("tiny-gpt2", "tiny-distilbert")
    for variant in ("original", "split_einsum")
    for compute in ("fp16", "fp32")
]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """{(model, variant, compute): (StageResult, folder)}, each converted once."""
    found = {}
    for case in CASES:
        out = tmp_path_factory.mktemp("-".join(case))
        found[case] = convert.run(task(*case), {}, out), out
    return found


def spec_of(folder: Path):
    from coremltools.proto import Model_pb2

    spec = Model_pb2.Model()
    spec.ParseFromString((folder / "model.mlpackage" / packages.MLMODEL).read_bytes())
    return spec


def operations(spec):
    (function,) = spec.mlProgram.functions.values()
    (block,) = function.block_specializations.values()
    return [op for op in block.operations if op.type != "const"]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_interface_and_facts(converted, case):
    name, _variant, compute = case
    result, folder = converted[case]
    spec = spec_of(folder)
    real = {"fp16": "FLOAT16", "fp32": "FLOAT32"}[compute]
    features = {f.name: f.type.multiArrayType for f in (*spec.description.input, *spec.description.output)}
    kinds = {key: (f.ArrayDataType.Name(f.dataType), list(f.shape)) for key, f in features.items()}
    expected = {"input_ids": ("INT32", [1, SEQ])}
    if name == "tiny-gpt2":
        expected["logits"] = (real, [1, SEQ, 1000])
    else:
        expected |= {"attention_mask": (real, [1, SEQ]), "logits": (real, [1, 2])}
    assert kinds == expected
    assert result.facts["ops"] == len(operations(spec))
    blob_bytes = (folder / "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    assert result.facts["parameter_bytes"] == pytest.approx(blob_bytes, rel=0.1)
    assert {entry.name for entry in result.metrics} == {"convert_s", "package_bytes", "bits_per_weight"}
    assert [path.name for path in folder.iterdir()] == ["model.mlpackage"]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("compute", ["fp16", "fp32"])
def test_split_einsum_is_free_of_reshapes(converted, compute):
    """The whole census of a decoder: one transpose a layer for the keys, one at either edge."""
    census = Counter(op.type for op in operations(spec_of(converted["tiny-gpt2", "split_einsum", compute][1])))
    census.pop("cast", None)
    assert census == {
        "gather": 1, "squeeze": 2, "transpose": LAYERS + 2, "conv": 6 * LAYERS + 1, "layer_norm": 2 * LAYERS + 1,
        "split": 3 * LAYERS, "einsum": 2 * HEADS * LAYERS, "softmax": HEADS * LAYERS, "concat": LAYERS, "gelu": LAYERS,
        "add": 1 + 2 * LAYERS + HEADS * LAYERS,
    }  # fmt: skip
    census = Counter(op.type for op in operations(spec_of(converted["tiny-distilbert", "split_einsum", compute][1])))
    assert not {"reshape", "linear", "matmul", "reduce_mean", "rsqrt"} & set(census)
    assert census["transpose"] == LAYERS + 1 and census["layer_norm"] == 2 * LAYERS + 1


@pytest.mark.slow
@pytest.mark.ci
def test_original_is_left_as_hugging_face_has_it(converted):
    census = Counter(op.type for op in operations(spec_of(converted["tiny-gpt2", "original", "fp16"][1])))
    assert census["linear"] == 4 * LAYERS + 1 and census["matmul"] == 2 * LAYERS and not census["einsum"]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("variant", ["original", "split_einsum"])
def test_a_tied_table_is_stored_once(converted, variant):
    parameters = options.shipped("model", "tiny-gpt2")["parameters"]
    result, _ = converted["tiny-gpt2", variant, "fp32"]
    # Of 512 positions only SEQ are kept; masks and vectors are small change. A second table would be 256,000 bytes.
    assert result.facts["parameter_bytes"] == pytest.approx(4 * (parameters - (512 - SEQ) * 64), rel=0.03)


@pytest.mark.slow
@pytest.mark.ci
def test_the_same_task_gives_the_same_bytes(converted, tmp_path):
    case = ("tiny-gpt2", "split_einsum", "fp16")
    convert.run(task(*case), {}, tmp_path)
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        assert (tmp_path / path).read_bytes() == (converted[case][1] / path).read_bytes(), path


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_program_computes_what_torch_computes(converted, case, tmp_path):
    from ane_sweep.worker import runtimes

    compute = case[2]
    params = task(*case)
    wish = {"count": 3, "seed": 0, "text": "", "tokenizer": None}
    reference.run({key: params[key] for key in ("model", "weights", "seq_len")} | {"texts": wish}, {}, tmp_path)
    runtime = runtimes.get("reference").load(
        {"runtime": "reference", "compute_units": None}, {"program": converted[case][1]}
    )
    with np.load(tmp_path / "inputs.npz") as file:
        feeds = {key: file[key] for key in file if key != "valid"}
    with np.load(tmp_path / "outputs.npz") as file:
        expected = file["logits"]
    got = np.stack([runtime.predict({key: value[i] for key, value in feeds.items()})["logits"] for i in range(3)])
    assert psnr_db(reference=expected, candidate=got) > {"fp16": 55, "fp32": 110}[compute]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("name", "variant"), [("tiny-gpt2", "original"), ("tiny-distilbert", "split_einsum")])
def test_lean_conversion_equals_a_plain_one(converted, tmp_path, name, variant):
    """coremltools untouched, its passes less the guard that we leave out on purpose: the same ops in the same order,
    the same weights to the last bit."""
    import coremltools as ct

    pipeline = ct.PassPipeline.DEFAULT
    pipeline.remove_passes({"common::guard_negative_gather_indices"})

    params = task(name, variant, "fp16")
    module, its_ports = _build.build(params, {}, variant)
    ports = its_ports()
    traced = coremltools_convert._trace(module, ports, building.options(params))
    kinds = {"int32": np.int32, "float32": np.float16}
    ct.convert(
        traced,
        inputs=[ct.TensorType(p.name, p.shape, dtype=kinds[p.dtype]) for p in ports.inputs],
        outputs=[ct.TensorType(p.name, dtype=np.float16) for p in ports.outputs],
        minimum_deployment_target=ct.target.iOS17,
        compute_precision=ct.precision.FLOAT16,
        pass_pipeline=pipeline,
        skip_model_load=True,
        package_dir=str(tmp_path / "model.mlpackage"),
    )
    blobs = [folder / "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin"
               for folder in (tmp_path, converted[name, variant, "fp16"][1])]  # fmt: skip
    assert blobs[0].read_bytes() == blobs[1].read_bytes()
    plain, lean = (operations(spec_of(folder)) for folder in (tmp_path, converted[name, variant, "fp16"][1]))
    assert [op.type for op in lean] == [op.type for op in plain]
    assert [op.outputs[0].type for op in lean] == [op.outputs[0].type for op in plain]


def test_lean_patches_exist_and_are_undone():
    import importlib

    originals = [
        vars(getattr(importlib.import_module(module), owner)).get(name) for module, owner, name, _ in shortcuts.PATCHES
    ]
    found = [p for p, original in zip(shortcuts.PATCHES, originals) if original is not None]
    assert {(owner, name) for _, owner, name, _ in found} >= {
        ("FP16ComputePrecision", "fp16_overflow"), ("FP16ComputePrecision", "_check_underflow_to_zero"),
        ("Program", "validate"), ("Block", "_propagate_nonreplaceable_vars"), ("Block", "__str__"),
    }  # fmt: skip
    with pytest.raises(ZeroDivisionError), shortcuts.take_shortcuts():
        raise ZeroDivisionError
    after = [
        vars(getattr(importlib.import_module(module), owner)).get(name) for module, owner, name, _ in shortcuts.PATCHES
    ]
    assert after == originals


@pytest.mark.parametrize(
    ("values", "fits"),
    [([0.0, 65504.0], True), ([-65504.0], True), ([65505.0], False), ([-7e4], False), ([np.nan], False),
     ([np.inf], False), ([], True)],
)  # fmt: skip
def test_fits_fp16(values, fits):
    assert shortcuts.fits_fp16(np.array(values, np.float32)) is fits


def test_values_beyond_fp16_stay_in_fp32(tmp_path):
    """The quick look must answer as coremltools' slow one: an op with a constant of 1e5 is not cast."""
    import coremltools as ct
    import torch

    class Big(torch.nn.Module):
        def forward(self, x):
            return x * torch.tensor([1e5, 1.0]) + 1.0

    traced = torch.jit.trace(Big(), torch.zeros(2))
    with shortcuts.take_shortcuts():
        model = ct.convert(
            traced,
            inputs=[ct.TensorType("x", (2,))],
            outputs=[ct.TensorType("y")],
            minimum_deployment_target=ct.target.iOS17,
            skip_model_load=True,
            package_dir=str(tmp_path / "m.mlpackage"),
        )
    kinds = {op.op_type: op.outputs[0].dtype.__name__ for op in model._mil_program.functions["main"].operations}
    assert kinds["mul"] == "fp32" and kinds["add"] == "fp16"


def test_an_empty_tensor_is_converted_as_by_coremltools(tmp_path):
    """As diffusers has it, 1 GiB for each attention over 4,096 positions, which `beta=0` leaves out; and one that is read."""
    import coremltools as ct
    import torch

    class Scores(torch.nn.Module):
        def forward(self, q):
            scores = torch.baddbmm(torch.empty(4, 16, 16), q, q.transpose(1, 2), beta=0, alpha=0.25)
            return torch.cat([scores, torch.empty(4, 16, 16, dtype=torch.int32).to(scores.dtype)])

    traced = torch.jit.trace(Scores(), torch.zeros(4, 16, 8), check_trace=False)

    def convert(name):
        package = tmp_path / name
        ct.convert(traced, inputs=[ct.TensorType("q", (4, 16, 8))], skip_model_load=True, package_dir=str(package))
        (weights,) = package.rglob("weight.bin")
        functions = read(package).spec.mlProgram.functions["main"].block_specializations
        return weights.read_bytes(), [
            (op.type, len(op.inputs)) for block in functions.values() for op in block.operations
        ]

    plain = convert("plain.mlpackage")
    with shortcuts.take_shortcuts():
        assert convert("ours.mlpackage") == plain
    assert ("matmul", 4) in plain[1]


def test_a_conversion_that_failed_in_this_process_changes_no_name(tmp_path):
    import coremltools as ct
    import torch

    class Net(torch.nn.Module):
        def __init__(self, last):
            super().__init__()
            self.norm, self.last = torch.nn.LayerNorm(4), last

        def forward(self, x):
            return self.last(self.norm(x))

    def names(last, folder):
        traced = torch.jit.trace(Net(last), torch.zeros(1, 4))
        with shortcuts.take_shortcuts():
            model = ct.convert(
                traced, inputs=[ct.TensorType("x", (1, 4))], skip_model_load=True, package_dir=str(tmp_path / folder)
            )
        return [op.name for op in model._mil_program.functions["main"].operations]

    alone = names(torch.relu, "alone.mlpackage")
    with pytest.raises(NotImplementedError):
        names(torch.special.i0, "failed.mlpackage")
    assert names(torch.relu, "after.mlpackage") == alone


def test_ios15_keeps_fp32_features(tmp_path):
    convert.run(task("tiny-bert", "split_einsum", "fp16", "iOS15"), {}, tmp_path)
    spec = spec_of(tmp_path)
    assert spec.specificationVersion == 6
    kinds = {f.type.multiArrayType.dataType for f in (*spec.description.input, *spec.description.output)}
    assert kinds == {131104, 65568}  # INT32, FLOAT32


@pytest.mark.parametrize(
    ("compute", "target", "output_type", "kind"),
    [("fp16", "iOS17", "auto", 65552), ("fp16", "iOS17", "fp32", 65568), ("fp32", "iOS17", "fp16", 65552)],
)
def test_outputs_have_the_dtype_that_was_asked_for(tmp_path, compute, target, output_type, kind):
    options = {"output_type": output_type} if output_type != "auto" else {}
    convert.run({**task("tiny-bert", "original", compute, target), "options": options}, {}, tmp_path)
    assert {feature.type.multiArrayType.dataType for feature in spec_of(tmp_path).description.output} == {kind}


@pytest.mark.skipif("sys.platform == 'darwin'", reason="the other side")
@pytest.mark.parametrize("stage", [compile_stage, place])
def test_macos_stages_say_so(tmp_path, stage):
    with pytest.raises(Unavailable, match=r"^needs macOS$"):
        stage.run({}, {"program": tmp_path}, tmp_path)


def test_what_the_macos_stages_call_exists():
    import coremltools as ct
    from coremltools.models.compute_plan import MLComputePlan
    from coremltools.models.utils import compile_model

    assert list(inspect.signature(compile_model).parameters)[:2] == ["model", "destination_path"]
    assert list(inspect.signature(MLComputePlan.load_from_path).parameters) == ["path", "compute_units"]
    for name in ("get_compute_device_usage_for_mlprogram_operation", "get_estimated_cost_for_mlprogram_operation"):
        assert list(inspect.signature(getattr(MLComputePlan, name)).parameters) == ["self", "operation"]
    for units in ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"):
        assert hasattr(ct.ComputeUnit, units.upper())


def test_a_compressed_constant_in_a_fresh_conversion_is_refused():
    from types import SimpleNamespace as N

    op = N(op_type="constexpr_lut_to_dense", name="w", outputs=[])
    with pytest.raises(StageError, match="w: a fresh conversion holds constexpr_lut_to_dense"):
        coremltools_convert._count_ops(N(functions={"main": N(operations=[op])}))
