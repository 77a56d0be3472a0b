"""The workers of a fleet: what each says of itself, which of them may take part, and where a cell can be measured."""

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep.bridge import conversion
from ane_sweep.bridge.place import Place, Places
from ane_sweep.bridge.runtimes import RUNTIMES, asked, cannot
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import link
from ane_sweep.machine import apple, host, memory
from ane_sweep.outward import credentials
from ane_sweep.terminal import say

# Set by `fleet worker` for the process that it starts.
NAME_VARIABLE, CHIP_VARIABLE, MEMORY_VARIABLE = "ANE_SWEEP_WORKER", "ANE_SWEEP_WORKER_CHIP", "ANE_SWEEP_WORKER_MEMORY"
SAME = ("ane_sweep", "coremltools", "torch", "transformers", "numpy", "code")  # as on the machine that plans
_LOOK_S = 1.0


class Member(msgspec.Struct):
    """A worker as it says itself. `declared`: the chip that it was told to answer for, in place of its own."""

    name: str
    chip: str
    key: str
    host: dict[str, Any]
    tools: dict[str, str | None]
    memory_gib: float
    no_coreml: str | None
    cannot: dict[str, str]
    asked: dict[str, dict[str, Any]]
    xcode: str | None
    declared: bool = False


@cache
def facts() -> str:
    """What this worker says of itself, as JSON. Called there by its name."""
    return msgspec.json.encode(me()).decode()


def memory_bytes() -> int:
    """What tasks may use together on this worker."""
    said = os.environ.get(MEMORY_VARIABLE)
    return memory.memory_budget(float(said) if said else None)


def fingerprint() -> dict[str, Any]:
    """This machine now, as a record has it."""
    declared = os.environ.get(CHIP_VARIABLE)
    return host.fingerprint() | ({} if declared is None else {"declared_chip": declared})


def me() -> Member:
    chip, declared = host.chip_name(host.chip()), os.environ.get(CHIP_VARIABLE)
    refused = {name: why for name in RUNTIMES if (why := cannot(name))}
    return Member(
        name=os.environ.get(NAME_VARIABLE, ""),
        chip=declared or chip,
        key=host.digest() if declared is None else _digest([host.digest(), declared]),
        host=fingerprint(),
        tools=tools(),
        memory_gib=memory_bytes() / 2**30,
        no_coreml=apple.no_coreml(),
        cannot=refused,
        asked={name: asked(name) for name in RUNTIMES if name not in refused},
        xcode=apple.xcode() if apple.is_mac() else None,
        declared=declared is not None,
    )


@cache
def tools() -> dict[str, str | None]:
    """Versions of what decides a result; `code` is a digest of ane-sweep's own, which changes within a version."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return {**host.toolchain(), "code": digest.hexdigest()[:12]}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def of(client: Any) -> tuple[list[Member], list[str]]:
    """(the workers that may take part, by name; why the others may not, each by its name)."""
    members: list[Member] = []
    refused: list[str] = []
    ours = tools()
    for at, said in client.run(facts, on_error="return").items():
        if not isinstance(said, str):
            refused.append(
                f"{at}: gives no facts of itself ({type(said).__name__}: {said}); is ane-sweep[fleet] there?"
            )
            continue
        member = conversion.decode(said, Member)
        if differ := [name for name in SAME if member.tools.get(name) != ours.get(name)]:
            versions = ", ".join(f"{name} {member.tools.get(name)} (here {ours.get(name)})" for name in differ)
            refused.append(f"{member.name}: refused, as its {versions}: install the same there")
        elif member.name in [one.name for one in members]:
            refused.append(f"{member.name}: refused, as another worker has that name: --name NAME gives it its own")
        else:
            members.append(member)
    return sorted(members, key=lambda one: one.name), refused


def doing(client: Any) -> tuple[dict[str, list[str]], int]:
    """(worker's name -> what runs on it, how many tasks wait)."""
    names = {at: str(one["name"]) for at, one in client.scheduler_info()["workers"].items()}
    given = {names[at]: list(keys) for at, keys in client.processing().items() if at in names}
    told = client.run(executing, on_error="return").items()
    running = {names[at]: keys for at, keys in told if at in names and isinstance(keys, list)}
    shown = {name: [_task(key) for key in keys] for name, keys in running.items() if keys}
    alone = int(client.run_on_scheduler(without_worker))
    return shown, alone + max(0, sum(map(len, given.values())) - sum(map(len, shown.values())))


def executing(dask_worker: Any) -> list[str]:
    """Keys of what runs on this worker. Called there by its name."""
    return [str(task.key) for task in dask_worker.state.executing]


def without_worker(dask_scheduler: Any) -> int:
    """How many tasks no worker has been given. Called there by its name."""
    return len(dask_scheduler.unrunnable) + len(dask_scheduler.queued)


def _task(key: str) -> str:
    """`convert 3f2a91b4c0de of 20261122-231500`, from a task's name with the scheduler."""
    stage, task, *sweep = key.split("-")
    return f"{stage} {task} of {'-'.join(sweep[:2])}" if len(sweep) > 2 else key


def described(members: Iterable[Member], refused: Sequence[str] = ()) -> str:
    """`m4-a (m4), m1-a (m1)`, and who may not take part."""
    names = ", ".join(f"{one.name} ({one.chip})" for one in members) or "none"
    return "; ".join([f"workers: {names}", *refused])


def place(wanted: str | None, members: Sequence[Member]) -> Place | None:
    """Where a cell that asks for that machine is measured: of the workers that fit, the most that are alike. None where
    none fits."""
    named = [one for one in members if one.name == wanted]
    fitting = named or [one for one in members if wanted in (None, one.chip)]
    if not fitting:
        return None
    alike: dict[str, list[Member]] = {}
    for one in fitting:
        alike.setdefault(one.key, []).append(one)
    chosen = max(alike.values(), key=lambda some: (some[0].no_coreml is None, len(some)))
    first = chosen[0]
    return Place(
        label=name_label(first.name) if named else host_label(first.key),
        key=_digest([first.key, first.name]) if named else first.key,
        names=tuple(one.name for one in chosen),
        host={**first.host, "worker": first.name} if len(chosen) == 1 else first.host,
        no_coreml=first.no_coreml,
        cannot=first.cannot,
        asked=first.asked,
        xcode=first.xcode,
    )


def host_label(key: str) -> str:
    return f"HOST-{key[:16]}"


def name_label(name: str) -> str:
    return f"NAME-{name}"


def places(settings: Mapping[str, Any], out: Path, wanted: Collection[str | None], *, wait: bool) -> Places | None:
    """What each `machine` of a matrix is; None where this machine does all. Raises ConfigError.

    wait   for workers that fit, as long as executor.wait_s; without it what is there now decides
    """
    if settings.get("executor", {}).get("name", "local") == "local":
        return None
    at, certificates = link.settings(settings["executor"], out)
    if not settings.get("store"):
        raise ConfigError(
            "executor=dask: store=URL says where artifacts are shared: a folder that all machines mount, as "
            "file:///mnt/nfs/ane-sweep, or s3://BUCKET/PREFIX (ane-sweep help fleet)"
        )
    if (store := settings["store"]) != credentials(store):
        raise ConfigError(
            f"store={credentials(store)}: it goes to every worker, so it holds no user and no password; fsspec takes those from "
            "each machine's own environment"
        )
    with link.connected(at, certificates) as client:
        return _found(client, wanted, settings["executor"]["wait_s"] if wait else 0)


def _found(client: Any, wanted: Collection[str | None], wait_s: float) -> Places:
    until, told = time.monotonic() + wait_s, False
    while True:
        members, refused = of(client)
        found = {machine: place(machine, members) for machine in wanted}
        lacking = sorted(str(machine or "any") for machine, one in found.items() if one is None)
        if not lacking or time.monotonic() >= until:
            break
        if not told:
            told = True
            names = ", ".join(f"machine={name}" for name in lacking)
            say(f"no worker fits {names}; {described(members, refused)}: waiting up to {wait_s:g} s (executor.wait_s)")
        time.sleep(_LOOK_S)
    for line in refused:
        say(f"doubt: worker {line}")
    return {machine: one or _unfit(machine, members, refused) for machine, one in found.items()}


def _unfit(machine: str | None, members: Sequence[Member], refused: Sequence[str]) -> str:
    wanted = f"machine={machine}: no worker has that chip or name" if machine else "no worker is there"
    return f"{wanted}; {described(members, refused)}; `ane-sweep fleet worker ADDRESS` on a machine adds it"
