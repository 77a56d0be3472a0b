"""Find states whose last dimension is no multiple of 32."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene
from ane_sweep.mil.element_types import tensor_type

RULE = HazardRule(
    order=41,
    kind="load",
    condition="a state whose last dimension is no multiple of 32",
    effect="the program fails on the Neural Engine, and runs on CPU and GPU (270 fails, 256 runs)",
    source="coremltools#2631 (M4, macOS 15.2)",
    confidence="medium",
    do="pad the state's last dimension to a multiple of 32, or put a dimension last that is one",
    only_ane=True,
)
WIDTH = 32


def find(scene: Scene) -> Iterator[Place]:
    for value in scene.graph.program.function.inputs:
        if value.type.WhichOneof("type") != "stateType":
            continue
        kind = tensor_type(value.type.stateType.wrappedType)
        width = kind.shape[-1] if kind is not None and kind.shape else None
        if width is not None and width % WIDTH:
            yield Place("", "state", f"state {value.name} has a last dimension of {width}")
