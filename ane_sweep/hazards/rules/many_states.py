"""Find programs with more states than others could run on the Neural Engine."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=74,
    kind="load",
    condition="three states or more in one program",
    effect="the program may not load on the Neural Engine (errors 11 and -14), or drift where states are fed back (23 states)",
    source="CoreML-LLM's notes (three states: error 11); mobius#16 (23 states)",
    confidence="low",
    do="merge the states into one tensor (keys and values of all layers stacked), or cut into chunks",
    only_ane=True,
)
MOST = 2


def find(scene: Scene) -> Iterator[Place]:
    kinds = [value.type.WhichOneof("type") for value in scene.graph.program.function.inputs]
    if (count := kinds.count("stateType")) > MOST:
        yield Place("", "", f"{count} states")
