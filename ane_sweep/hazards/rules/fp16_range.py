"""Find values that fp16 loses, by running the program with --numbers: infinite or 0, though the same in fp32 is neither."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph
from ane_sweep.hazards.rule import HazardRule, Place, Scene
from ane_sweep.hazards.running import RangeFault, feed, find_harmful, find_range_faults, load_model

RULE = HazardRule(
    order=90,
    kind="numerics",
    condition="with --numbers: on the inputs given, or on random ones, a value of fp16 is infinite or 0 where the same in fp32 is neither",
    effect="fp16 numbers are lost from here on",
    source="the range of fp16; accumulator probes on M1 to M6 (ANEForge, 751K)",
    confidence="high",
    do="scale the operands, convert this op with fp32 (op_selector), or see the rules for its pattern",
    runs="numbers",
)
_EFFECTS = {
    "overflow": "infinite in fp16; up to {peak:.3g} in fp32, and fp16 ends at 65,504",
    "vanished": "0 in fp16 for up to {share:.0%} of the elements, and not in fp32; the smallest fp16 number is 6e-8",
    "accumulator": "infinite on the Neural Engine, whose sums end at 32,768; up to {peak:.3g} here",
}
_SENSITIVE = ("log", "rsqrt", "inverse", "real_div")
_LARGE_SHARE = 0.5
# most of their numbers may well be 0
_TAILS = ("softmax", "sigmoid", "exp", "silu", "gelu", "scaled_dot_product_attention")


def find(scene: Scene) -> Iterator[Place]:
    model, exact = load_model(scene), load_model(scene, "fp32")
    fed = scene.trial.fed if scene.trial is not None else ""
    found, right = find_range_faults(model, exact, feed(scene, model))
    harmful = find_harmful(scene.graph, right)
    for kind, text in _EFFECTS.items():
        faults = [fault for fault in found if fault.kind == kind and _counts(scene.graph, fault, harmful)]
        peak, share = (max((getattr(fault, name) for fault in faults), default=0.0) for name in ("peak", "share"))
        for fault in faults:
            effect = text.format(peak=peak, share=share)
            yield Place(fault.name, fault.type, f"with {fed}", effect, only_ane=kind == "accumulator")


def _counts(graph: Graph, fault: RangeFault, harmful: set[str]) -> bool:
    """Return False for numbers that vanish without harm: what reads them is right all the same (a tiny epsilon that is
    added), or they are few, or tails, and no logarithm or division reads them.
    """
    if fault.kind != "vanished":
        return True
    if fault.name not in harmful:
        return False
    if fault.share >= _LARGE_SHARE and fault.type not in _TAILS:
        return True
    return any(
        user.type in _SENSITIVE and (user.type != "real_div" or user.read("y") == fault.name)
        for user in graph.users(fault.name)
    )
