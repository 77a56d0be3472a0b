"""Find the op at which the Neural Engine's known roundings part from fp32, by running the program with --effects."""

import math
from collections.abc import Iterator, Sequence

from ane_sweep.hazards.rule import HazardRule, Place, Scene
from ane_sweep.hazards.running import PART, feed, find_harmful, load_model
from ane_sweep.reference.trace import ObservedValue, measure_drift

RULE = HazardRule(
    order=91,
    kind="numerics",
    condition="with --effects: a value is 5 % of its peak or more away from the same in fp32, and so is what reads it",
    effect="parts from fp32",
    source="the effects in mil/effects.py, each with its source; a model of the hardware, not a measurement",
    confidence="medium",
    do="ane-sweep run MODEL --numerics ane --drift 20 lists every op; see the rules for the op's pattern",
    runs="effects",
)
_EXACT_DB = 200.0


def find(scene: Scene) -> Iterator[Place]:
    effects = scene.trial.effects if scene.trial is not None else None
    fed = f"with {scene.trial.fed}" if scene.trial is not None else ""
    exact, model = load_model(scene, "fp32"), load_model(scene, "ane", effects)
    inputs = feed(scene, model)
    seen = measure_drift(model, exact, inputs)
    harmful = find_harmful(scene.graph, {one.name for one in seen if one.drift is not None and one.drift < PART})
    apart = (value for value in seen if value.drift is not None and not value.drift < PART)
    first = next((value for value in apart if value.name in harmful), None)
    if first is None:
        fact = f"the Neural Engine's roundings and fp32 do not part {fed}"
        effect = f"the worst output has {_worst_output(seen, scene.graph.outputs):.0f} dB"
        yield Place("", "", fact, effect, do="try your own inputs with --input", level="note")
        return
    half = measure_drift(load_model(scene), exact, inputs)
    plain = next((value.drift for value in half if value.name == first.name), None)
    yield Place(first.name, first.type, fed, _describe(first, plain, seen, scene.graph.outputs))


def _describe(first: ObservedValue, plain: float | None, seen: Sequence[ObservedValue], outputs: set[str]) -> str:
    before = [value for value in seen[: seen.index(first) + 1] if value.own is not None]
    most = max(before, key=lambda value: value.own or 0.0, default=first)
    own = "this op itself" if most is first else f"{most.name} ({most.type}) before it"
    cause = (
        "fp16 alone does as well" if plain is not None and not plain < PART else f"fp16 alone is {_share(plain)} off"
    )
    off, loss = _share(first.drift), _share(most.own)
    off = "not finite where fp32 is" if off == "not finite" else f"{off} of its peak"
    loss = "makes it so" if loss == "not finite" else f"loses {loss}, the most"
    return (
        f"parts from fp32 here: {off}; {own} {loss}; {cause}; "
        f"the worst output has {_worst_output(seen, outputs):.0f} dB"
    )


def _share(part: float | None) -> str:
    return "not known" if part is None else "not finite" if not math.isfinite(part) else f"{part:.1%}"


def _worst_output(seen: Sequence[ObservedValue], outputs: set[str]) -> float:
    """Return the lowest PSNR of an output in dB, 200 if all are exact."""
    rated = [value.psnr_db for value in seen if value.name in outputs and value.psnr_db is not None]
    worst = min((db if not math.isnan(db) else -math.inf for db in rated), default=_EXACT_DB)
    return max(-_EXACT_DB, min(_EXACT_DB, worst))
