"""exclusions.toml: which items are not counted, by what rule and for which upstream cause."""

import fnmatch
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("exclusions.toml")


@dataclass(frozen=True)
class Exclusion:
    """`node` is a test function's id, or an item's with `*` for any text inside its brackets."""

    node: str
    rule: str
    cause: str

    def covers(self, node: str) -> bool:
        function, _, parameters = node.partition("[")
        own_function, _, own_parameters = self.node.partition("[")
        if function != own_function:
            return False
        return not own_parameters or fnmatch.fnmatchcase(parameters, own_parameters.replace("[", "[[]"))


@cache
def read(file: Path = FILE) -> tuple[Exclusion, ...]:
    """All exclusions. Raises ValueError where one lacks its rule or cause, or names a rule that is not declared."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    rules = content.get("rules", {})
    found = []
    for item in content.get("exclude", []):
        if item.get("rule") not in rules or not item.get("cause") or "::" not in item.get("node", ""):
            raise ValueError(f"{file.name}: {item} needs a node id, a cause, and a rule of {sorted(rules)}")
        found.append(Exclusion(item["node"], item["rule"], item["cause"]))
    return tuple(found)


def rules(file: Path = FILE) -> dict[str, str]:
    declared: dict[str, str] = tomllib.loads(file.read_text(encoding="utf-8")).get("rules", {})
    return declared


def find(node: str) -> Exclusion | None:
    return next((item for item in read() if item.covers(node)), None)
