"""Find compressed weights that an OS cannot load, or that fail on the Neural Engine."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=60,
    kind="compression",
    condition="a form of compression that came with iOS 18, or a palette with a scale for each channel",
    effect="needs iOS 18 or macOS 15: older systems refuse the program as a whole",
    source="coremltools#2283; desert-ant-core#85",
    confidence="high",
    do="compress with a form of iOS 16 (one palette a weight, int8 a channel) if older systems count",
    level="note",
)
_SINCE_IOS18 = {
    "constexpr_blockwise_shift_scale", "constexpr_lut_to_sparse", "constexpr_sparse_blockwise_shift_scale",
}  # fmt: skip


def find(scene: Scene) -> Iterator[Place]:
    graph = scene.graph
    for node in (node for node in graph if node.type in _SINCE_IOS18):
        data = graph.maker(node.read("data"))
        if data is not None and data.type == "constexpr_lut_to_dense":
            yield Place(
                node.outputs[0], node.type, "a palette with a scale for each channel",
                "fails to load on the Neural Engine of macOS 26; CPU and GPU take it", "coremltools#2688",
                "palettise without enable_per_channel_scale", "warning",
            )  # fmt: skip
        else:
            yield Place(node.outputs[0], node.type)
