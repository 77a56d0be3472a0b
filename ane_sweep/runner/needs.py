"""Which worker of a fleet may do a task, as amounts of its scheduler's resources. Dask routes by them; nothing here waits.

TOOLS-<digest>   any number: workers with the very versions of the sweep
NAME-<worker>    any number: that one
HOST-<digest>    any number: machines that are alike
PREP             preparations side by side
MEMORY           GiB that they may use together
TIME             1: what is timed, one at a time
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

from ane_sweep.bridge.task import Task
from ane_sweep.fleet import members

ENOUGH = 1e6  # of a label


def offered(member: members.Member, prepare: int) -> dict[str, float]:
    """What a worker has."""
    labels = (tools_label(member.tools), members.name_label(member.name), members.host_label(member.key))
    slots = {"PREP": float(prepare), "MEMORY": round(member.memory_gib, 2), "TIME": 1.0}
    return {**dict.fromkeys(labels, ENOUGH), **slots}


def of(task: Task, spot: str) -> dict[str, float]:
    """What a task takes. `spot`: the label of where it must run; "": anywhere."""
    taken = {tools_label(members.tools()): 1.0}
    if spot:
        taken[spot] = 1.0
    if task.alone:
        return taken | {"TIME": 1.0}
    return taken | ({} if spot else {"PREP": 1.0}) | {"MEMORY": round(task.memory_bytes / 2**30, 2)}


def tools_label(tools: Mapping[str, str | None]) -> str:
    same = [tools.get(name) for name in members.SAME]
    return f"TOOLS-{hashlib.sha256(json.dumps(same).encode()).hexdigest()[:16]}"


def describe(needs: Mapping[str, float], names: Mapping[str, Sequence[str]]) -> str:
    """Return what a task needs, in words: `worker m4-a, 2.3 GiB of memory`. `names`: label of a place -> its workers."""
    words = ["the versions of this sweep"]
    for label, amount in needs.items():
        kind, _, name = label.partition("-")
        if kind == "NAME":
            words.append(f"worker {name}")
        elif kind == "HOST":
            words.append(f"one of the workers {', '.join(names[label])}")
        elif kind == "MEMORY":
            words.append(f"{amount:g} GiB of memory")
        elif kind == "PREP":
            words.append("a worker that prepares (--prepare above 0)")
    return ", ".join(words)
