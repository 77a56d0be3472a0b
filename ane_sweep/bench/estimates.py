"""our estimates beside coremltools' published medians: torchvision's nets of random weights, fp16, 224x224, on an A16 and an A17 Pro"""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ane_sweep.bench import Row
from ane_sweep.errors import ConfigError
from ane_sweep.results import published as others

NETS = {"ResNet50": "resnet50", "MobileNetV2": "mobilenet_v2", "MobileNetV3-small": "mobilenet_v3_small"}
CHIPS = ("a16", "a17_pro")
_SIZE = 224


def run() -> list[Row]:
    """A row a net and chip that somebody has published. Raises ConfigError without torchvision."""
    if reason := missing():
        raise ConfigError(f"estimates: {reason}")
    rows = []
    for name, builder in NETS.items():
        with tempfile.TemporaryDirectory() as folder:
            program = converted(builder, Path(folder) / "net.mlpackage")
            for chip in CHIPS:
                if (median := published(name, chip)) is not None:
                    rows.append(_row(name, chip, estimated(program, chip), median))
    return rows


def missing() -> str | None:
    """Why torchvision's nets cannot be had here, with the way; None where they can."""
    if find_spec("torchvision") is not None:
        return None
    return (
        "torchvision is not installed; beside a PyTorch for CPUs: pip install --no-deps --target FOLDER torchvision, then "
        "PYTHONPATH=FOLDER"
    )


def _row(name: str, chip: str, found: Any, median: float) -> Row:
    inside = "inside" if found.low_ms <= median <= found.high_ms else "outside"
    ours = f"{found.ms:.2f} ms ({found.low_ms:.2f} to {found.high_ms:.2f})"
    return Row(f"{name} {chip}", ours, f"{median:.2f} ms, published", f"{found.ms / median:.2f}", f"{inside} its band")


def published(name: str, chip: str) -> float | None:
    """The median of a net in fp16 as coremltools' guide has it."""
    for row in others.rows():
        is_guide = row["source"].startswith("apple/coremltools docs") and row["precision"] == "fp16"
        if is_guide and row["model"] == name and row["chip"] == chip:
            return row.figures.get("predict_ms")
    return None


def converted(builder: str, target: Path) -> Path:
    """torchvision's net as a package, for iOS16 as the guide's are."""
    import coremltools as ct
    import torch

    _operators(torch)
    import torchvision

    net = getattr(torchvision.models, builder)(weights=None).eval()
    image = torch.rand(1, 3, _SIZE, _SIZE)
    traced = torch.jit.trace(net, image)
    target_os = ct.target.iOS16
    inputs = [ct.TensorType("image", image.shape)]
    ct.convert(traced, inputs=inputs, minimum_deployment_target=target_os, skip_model_load=True).save(str(target))
    return target


def _operators(torch: Any) -> None:
    """torchvision's own ops by name: its wheel for CUDA beside a PyTorch for CPUs asks for them when it is imported."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


_LIBRARIES: list[Any] = []  # what is defined lives as long as its library


def estimated(program: Path, chip: str) -> Any:
    """The estimate of a program on one chip, all units allowed."""
    from ane_sweep.placement import chips, predict, programs

    found = predict.predict_chain(programs.load_chain([program]), chips.get(chip), "all")
    if found.estimate is None:
        raise ConfigError(f"{program.name}: {found.not_estimated}")
    return found.estimate
