"""Find weights that are written into the program's text in place of the weight file."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=72,
    kind="load",
    condition="constants of 20 MB or more inside the program itself",
    effect="each load parses them as text of the compiled program: minutes, and many times their size in memory (17 GB for 3.7 GB)",
    source="onnxruntime#32212",
    confidence="medium",
    do="convert so that weights lie in weights/weight.bin (coremltools does from 10 elements on); for ONNX Runtime disable MatMulAddFusion",
)
MOST_BYTES = 20_000_000


def find(scene: Scene) -> Iterator[Place]:
    protos = [node.proto for node in scene.graph.nodes("const")]
    held = [proto.attributes["val"] for proto in protos if "val" in proto.attributes]
    total = sum(value.ByteSize() for value in held if value.HasField("immediateValue"))
    if total >= MOST_BYTES:
        yield Place("", "", f"{total / 1e6:,.0f} MB of constants in the program")
