"""The declaration of a rewrite, and the places that it finds. One module each in ane_sweep/fix/rewrites; the file's name
is the rewrite's.

    REWRITE = ProgramRewrite(order=40, kind="placement", help="...", ...)
    def match(graph: Graph) -> Iterator[Site]: ...     # the places; the graph is not changed
    def apply(graph: Graph, site: Site) -> None: ...   # build the new ops, then graph.replace(old, new)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal, Protocol

from ane_sweep.bridge.declared import Declared
from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.fix.functions import open_functions
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.interface import BY_NAME
from ane_sweep.mil.package import Package

_PACKAGE = "ane_sweep.fix.rewrites"


@dataclass(frozen=True)
class ProgramRewrite:
    """The declaration of a rewrite, read from its module without an import.

    order       its rank; a rewrite sees the program as the ones before it left it
    kind        "placement": kept if the prediction for the chip improves; "accuracy": kept if the error in the Neural
                Engine's arithmetic falls
    help        one line: what becomes what
    condition   when the replacement computes the same
    bound       the largest difference in fp32, relative to the largest output; 0.0: the same bits
    derivation  the reason for the bound
    source      where the advice comes from
    evidence    measurements with their author and chip; or "predicted only"
    scales      standard deviations of the random inputs with which each place is proven
    lost_db     the PSNR in fp16 that a place may lose; more than 1 only if the original, as long as nothing in it overflows,
                has fewer roundings
    lost_why    the reason, if that is more than 1
    chips       the chips or families that it is for; empty: any, as the prediction decides
    least_opset the first opset ("CoreML5" is 5) that has the ops of the replacement
    mends_nan   True if the replacement makes numbers where the original makes NaN; elsewhere the bound holds
    then        rewrites that are applied with it before the prediction decides, as they pay only together
    """

    order: int
    kind: Literal["placement", "accuracy"]
    help: str
    condition: str
    bound: float
    derivation: str
    source: str
    evidence: str
    scales: tuple[float, ...] = (1.0, 8.0)
    lost_db: float = 1.0
    lost_why: str = ""
    chips: tuple[str, ...] = ()
    least_opset: int = 5
    mends_nan: bool = False
    then: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """A place where a rewrite matches: the op that is replaced, the other ops of the pattern, facts for `apply`, and
    values that are 0 or 1 by the rewrite's condition (the proof draws them so).

    An op of a site may be gone when its turn comes; the site is then left out.
    """

    node: Node
    others: tuple[Node, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    masks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.node.outputs[0] if self.node.outputs else self.node.type

    @property
    def is_alive(self) -> bool:
        return self.node.is_alive and all(node.is_alive for node in self.others)


class RewriteModule(Protocol):
    """A module of ane_sweep/fix/rewrites."""

    def match(self, graph: Graph) -> Iterator[Site]: ...
    def apply(self, graph: Graph, site: Site) -> None: ...


REWRITES = Declared(_PACKAGE, "REWRITE", ProgramRewrite, lambda rewrite: rewrite.order)


def load(name: str) -> RewriteModule:
    """Import the module of a rewrite. Raises ConfigError if its declaration or module is incomplete."""
    one = REWRITES[name]
    unknown = [other for other in one.then if other not in REWRITES]
    if unknown or one.bound < 0 or not one.source or (one.lost_db > 1 and not one.lost_why):
        raise ConfigError(
            f"rewrite {name}: `then` names rewrites ({', '.join(unknown) or 'right'}), `bound` is 0 or more, `source` is given, and "
            "`lost_why` where `lost_db` is more than 1"
        )
    module: RewriteModule = import_module(f"{_PACKAGE}.{name}")
    return module


def choose(only: tuple[str, ...] = ()) -> list[str]:
    """Return the rewrites with these names in their order, or all of them; those that change the interface are chosen
    elsewhere. Raises ConfigError for an unknown name.
    """
    if unknown := [name for name in only if name not in REWRITES and name not in BY_NAME]:
        near = suggestion(unknown[0], [*REWRITES, *BY_NAME])
        raise ConfigError(f"--only {unknown[0]}: no such rewrite{near}; `ane-sweep fix --list` has them all")
    return [name for name in REWRITES if not only or name in only]


def find_sites(name: str, graph: Graph) -> Iterator[Site]:
    """Yield the places of a function where a rewrite matches; the graph must not change meanwhile."""
    opset = int("".join(filter(str.isdigit, graph.program.opset)) or 5)
    return iter(load(name).match(graph)) if opset >= REWRITES[name].least_opset else iter(())


def find_matches(package: Package) -> list[str]:
    """Return the names of the rewrites that match somewhere in a package. Nothing is changed, proven or predicted."""
    graphs = open_functions(package).values()
    return [name for name in REWRITES if any(site for one in graphs for site in find_sites(name, one))]
