"""A machine as a plan sees it: its abilities, and the facts that enter the keys of tasks that depend on the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """Machines of a fleet that are equivalent for a plan, or the one machine that was requested by name.

    label      the resource of the fleet's scheduler that these workers alone have
    key        digest of what makes their figures comparable
    names      the workers
    host       what one of them says of itself, as a record has it
    no_coreml  why Core ML cannot run there; None where it can
    cannot     runtime -> why it cannot run there; those that can are not in it
    asked      runtime -> what that machine says of itself that enters its keys
    """

    label: str
    key: str
    names: tuple[str, ...]
    host: Mapping[str, Any]
    no_coreml: str | None
    cannot: Mapping[str, str]
    asked: Mapping[str, Mapping[str, Any]]
    xcode: str | None


Places = Mapping[str | None, Place | str]
"""What `machine=` was asked to be -> where that is, or why nothing fits."""
