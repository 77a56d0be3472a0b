"""Run every rule on every function of a package, and fold what a rule finds in a function into few findings."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.fix.graph import Graph
from ane_sweep.hazards.rule import RULES, HazardRule, Place, ProgramTrial, Scene, find_places
from ane_sweep.mil import graph as mil
from ane_sweep.mil import pipeline
from ane_sweep.mil.package import Package
from ane_sweep.placement.findings import Finding
from ane_sweep.placement.predict import Prediction

_OFF = "predicted off the Neural Engine here, where this does not happen"
_SHOWN = 3  # ops that a finding names


def search(prediction: Prediction, trial: ProgramTrial | None = None) -> list[Finding]:
    """Return the findings about the programs of a prediction, warnings before notes. Raises PackageError."""
    found: list[Finding] = []
    parts: dict[Path, list[Package]] = {}
    for chunk in prediction.chunks:
        path = chunk.program.path
        if path not in parts:
            parts[path] = pipeline.read_programs(path)
        package = parts[path].pop(0)
        on_ane = {row.site.name for row in chunk.rows if row.preferred == "ane"}
        for function, sites in chunk.program.functions.items():
            graph = Graph(mil.view_program(package, function), Path())
            scene = Scene(graph, function, sites, chunk.program, prediction.chip, prediction.compute_units, trial)
            whose = chunk.program.chunk if len(prediction.chunks) > 1 else ""
            whose += f" {function}" if len(chunk.program.functions) > 1 else ""
            found += search_function(scene, on_ane, whose.strip())
    return sorted(found, key=lambda finding: finding.severity == "note")


def search_function(scene: Scene, on_ane: Collection[str], whose: str = "") -> Iterator[Finding]:
    """Yield the findings about one function. `on_ane`: first outputs of the ops that are predicted on the Neural Engine."""
    runs = scene.trial.runs if scene.trial is not None else ()
    may_be_ane = scene.compute_units in ("all", "cpu_and_ne")
    for name, rule in RULES.items():
        if (rule.runs and rule.runs not in runs) or (rule.only_ane and not may_be_ane):
            continue
        places = _find_places(name, scene)
        places = [_mark_off_ane(place, on_ane) if rule.only_ane or place.only_ane else place for place in places]
        for _, same in groupby(sorted(places, key=_words), key=_words):
            yield _make_finding(name, rule, list(same), scene, whose)


def _find_places(name: str, scene: Scene) -> list[Place]:
    """Return the places of one rule. Raises PackageError for ops whose parameters no op can have."""
    try:
        return list(find_places(name, scene))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise PackageError(
            f"{scene.program.path}: rule {name} cannot read an op ({error}); is the file damaged?"
        ) from error


def _mark_off_ane(place: Place, on_ane: Collection[str]) -> Place:
    """Return a place as a note if its op, or each op of the program, is predicted off the Neural Engine."""
    if place.name in on_ane or (not place.name and on_ane):
        return place
    return replace(place, level="note", fact="; ".join(filter(None, (place.fact, _OFF))))


def _words(place: Place) -> tuple[str, ...]:
    """Return the words of a place; places with the same words become one finding."""
    return (place.source, place.effect, place.fact, place.do, place.level)


def _make_finding(name: str, rule: HazardRule, places: Sequence[Place], scene: Scene, whose: str) -> Finding:
    first, types = places[0], Counter(place.type for place in places if place.name)
    named = ", ".join(place.name for place in places[:_SHOWN]) + (", ..." if len(places) > _SHOWN else "")
    ops = ", ".join(f"{count} {kind}" for kind, count in types.items()) + f" ({named})" if types else ""
    package = shlex.quote(str(scene.program.path))
    do = f"ane-sweep fix {package} --only {','.join(rule.mends)}" if rule.mends else ""
    return Finding(
        rule=f"{rule.kind}/{name}",
        severity=first.level or rule.level,
        what=" ".join(filter(None, (whose and f"{whose}:", ", ".join(filter(None, (ops, first.fact)))))),
        why=first.effect or rule.effect,
        do=first.do or "; or ".join(filter(None, (do, rule.do))) or None,
        source=first.source or rule.source,
        confidence=rule.confidence,
        chip=scene.chip.chip if rule.only_ane or first.only_ane else None,
        op=first.name or None,
        op_type=first.type or None,
        ops=max(1, sum(types.values())),
        rewrite=",".join(rule.mends) or None,
    )
