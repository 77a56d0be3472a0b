"""Find ops that Core ML is known to compute wrongly, by data/known_wrong.csv."""

from collections.abc import Iterator

from ane_sweep.hazards.known_wrong import UNITS, describe, list_rows, matches
from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=50,
    kind="numerics",
    condition="an op and sizes of a row of data/known_wrong.csv",
    effect="reported to be computed wrongly",
    source="data/known_wrong.csv",
    confidence="medium",
    do="compare this op's result with the CPU's on the device",
)


def find(scene: Scene) -> Iterator[Place]:
    outputs = set(scene.graph.outputs)
    for row in list_rows():
        if not row.when or scene.compute_units not in UNITS.get(row.unit, (scene.compute_units,)):
            continue
        effect, source = describe(row)
        for site in scene.sites:
            is_meant = site.type == row.op or (row.op == "*" and site.name in outputs)
            if is_meant and matches(row, site, outputs):
                yield Place(
                    site.name, site.type, row.condition, effect, source, level=row.level, only_ane=row.unit == "ane"
                )
