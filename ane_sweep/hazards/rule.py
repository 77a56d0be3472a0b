"""The declaration of a rule, and the places that it finds. One module each in ane_sweep/hazards/rules; the file's name is the
rule's.

    RULE = HazardRule(order=10, kind="numerics", effect="...", condition="...", source="...", ...)
    def find(scene: Scene) -> Iterator[Place]: ...

A rule without `find` speaks where the rewrites that mend it apply.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol

from ane_sweep.bridge.declared import Declared
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.rewrite import find_sites
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.programs import Program
from ane_sweep.placement.sites import Site

_PACKAGE = "ane_sweep.hazards.rules"


@dataclass(frozen=True)
class HazardRule:
    """The declaration of a rule, read from its module without an import.

    order       its rank among the rules
    kind        "numerics": wrong results without an error; "compression": weights that a chip does not speed up or an OS
                cannot load; "load": minutes before the first prediction, or a compiler that fails
    condition   what the program must have for the rule to speak
    effect      what happens on the device
    source      the issue, the pull request or the measurement that the rule comes from
    confidence  "high": Apple or several parties; "medium": one party with data; "low": one report
    mends       rewrites of ane_sweep/fix/rewrites that mend the program
    do          what to change where no rewrite mends it
    only_ane    True if it happens on the Neural Engine alone
    level       "warning", or "note" for what may well be intended
    runs        the option that must be given, as the rule runs the program: "numbers" or "effects"; empty: it only reads
    """

    order: int
    kind: Literal["numerics", "compression", "load"]
    condition: str
    effect: str
    source: str
    confidence: Literal["high", "medium", "low"]
    mends: tuple[str, ...] = ()
    do: str = ""
    only_ane: bool = False
    level: Literal["warning", "note"] = "warning"
    runs: Literal["", "numbers", "effects"] = ""


@dataclass(frozen=True)
class Place:
    """One place that a rule finds: the op's first output ("" for the whole program), its type, and facts in words.

    `effect`, `source`, `do`, `level` and `only_ane` stand in for those of the rule where it reads them from a table.
    """

    name: str
    type: str
    fact: str = ""
    effect: str = ""
    source: str = ""
    do: str = ""
    level: Literal["", "warning", "note"] = ""
    only_ane: bool = False


@dataclass(frozen=True)
class ProgramTrial:
    """The settings for rules that run the program.

    `feed` makes inputs by name from {name: features.Feature}; `fed` describes them; `effects`: names, None for the
    default ones.
    """

    runs: tuple[str, ...]
    feed: Callable[[Mapping[str, object]], dict[str, object]]
    fed: str
    effects: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Scene:
    """One function of a package as rules see it: the graph with its constants, and the ops' descriptions."""

    graph: Graph
    function: str
    sites: Sequence[Site]
    program: Program
    chip: Chip
    compute_units: str
    trial: ProgramTrial | None = None


class RuleModule(Protocol):
    """A module of ane_sweep/hazards/rules."""

    def find(self, scene: Scene) -> Iterator[Place]: ...


RULES = Declared(_PACKAGE, "RULE", HazardRule, lambda rule: rule.order)


def find_places(name: str, scene: Scene) -> Iterator[Place]:
    """Return the places that a rule finds."""
    module: RuleModule = import_module(f"{_PACKAGE}.{name}")
    return module.find(scene) if hasattr(module, "find") else find_rewrite_places(scene, *RULES[name].mends)


def place_node(node: Node, fact: str = "") -> Place:
    """Return the place of an op of the graph."""
    return Place(node.outputs[0] if node.outputs else node.type, node.type, fact)


def find_rewrite_places(scene: Scene, *rewrites: str) -> Iterator[Place]:
    """Yield a place for each op that one of these rewrites would replace."""
    seen = set()
    for name in rewrites:
        for site in find_sites(name, scene.graph):
            if site.name not in seen:
                seen.add(site.name)
                yield place_node(site.node)
