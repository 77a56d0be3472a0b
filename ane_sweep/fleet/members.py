"""The workers of a fleet: the facts that each reports, which workers may take part, and where cells can be measured."""

import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from ane_sweep.bridge import conversion
from ane_sweep.bridge.plan import Place, Places
from ane_sweep.bridge.runtimes import RUNTIMES, cannot, collect_host_facts
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import link
from ane_sweep.fleet.link import Client
from ane_sweep.machine import apple, host, memory
from ane_sweep.outward import mask_credentials
from ane_sweep.terminal import say

# Set by `fleet worker` for the process that it starts.
NAME_VARIABLE, CHIP_VARIABLE, MEMORY_VARIABLE = "ANE_SWEEP_WORKER", "ANE_SWEEP_WORKER_CHIP", "ANE_SWEEP_WORKER_MEMORY"
FACTS: Final = "ane_sweep"  # under which a worker's facts lie with the scheduler
SAME = ("ane_sweep", "coremltools", "torch", "transformers", "numpy", "code")  # as on the machine that plans
SILENT_S = 5.0  # a worker that lives is heard from at least every 2 s
_LOOK_S = 1.0


class Member(msgspec.Struct):
    """The facts that a worker reports. `declared`: its chip was given with --chip."""

    name: str
    chip: str
    key: str
    host: dict[str, object]
    tools: dict[str, str | None]
    memory_gib: float
    no_coreml: str | None
    cannot: dict[str, str]
    asked: dict[str, dict[str, object]]
    xcode: str | None
    declared: bool = False


@cache
def facts() -> str:
    """Return the facts that this worker reports when it joins, as JSON."""
    return msgspec.json.encode(describe_self()).decode()


def memory_bytes() -> int:
    """Return the bytes that all tasks on this worker may use together."""
    gib = os.environ.get(MEMORY_VARIABLE)
    return memory.memory_budget(float(gib) if gib else None)


def fingerprint() -> dict[str, object]:
    """Return the facts of this machine now, in the form of a record's `host`."""
    declared = os.environ.get(CHIP_VARIABLE)
    return host.fingerprint() | ({} if declared is None else {"declared_chip": declared})


def describe_self() -> Member:
    """Return the facts of this worker."""
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
        asked={name: collect_host_facts(name) for name in RUNTIMES if name not in refused},
        xcode=apple.xcode() if apple.is_mac() else None,
        declared=declared is not None,
    )


@cache
def tools() -> dict[str, str | None]:
    """Return the versions of everything that affects a result; `code` is a digest of ane-sweep's own code."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return {**host.toolchain(), "code": digest.hexdigest()[:12]}


def _digest(value: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def list_members(client: Client) -> tuple[list[Member], list[str]]:
    """Return (the workers that may take part, by name; why each other worker may not).

    Each worker gave its facts to the scheduler when it joined, so a hanging worker causes no delay.
    """
    members: list[Member] = []
    refused: list[str] = []
    for at, known in client.scheduler_info(n_workers=-1)["workers"].items():
        if (told := known.get(FACTS)) is None:
            refused.append(f"{at}: refused, as `ane-sweep fleet worker` did not start it")
            continue
        member = conversion.decode(told, Member)
        if differ := describe_differences(member.tools, tools()):
            refused.append(f"{member.name}: refused, as its {differ}: install the same there")
        else:
            members.append(member)
    return sorted(members, key=lambda one: one.name), refused


def describe_differences(theirs: Mapping[str, str | None], ours: Mapping[str, str | None]) -> str:
    """Return the versions in which two machines differ, as `torch 2.12 (here 2.13)`; empty if they are equal."""
    names = [name for name in SAME if theirs.get(name) != ours.get(name)]
    return ", ".join(f"{name} {theirs.get(name)} (here {ours.get(name)})" for name in names)


class Activity(msgspec.Struct):
    """The work of a fleet: running tasks by worker, the number of waiting tasks, seconds since each worker's last message."""

    running: dict[str, list[str]]
    waiting: int
    silent_s: dict[str, float]


def read_activity(client: Client) -> Activity:
    """Return the work of a fleet now. Tasks are named as `convert 3f2a91b4c0de of 20261122-231500`."""
    work = conversion.convert(client.run_on_scheduler(report_activity), Activity)
    parts = {name: [key.split("-") for key in keys] for name, keys in work.running.items() if keys}
    work.running = {
        name: [f"{key[0]} {key[1]} of {'-'.join(key[2:4])}" if len(key) > 4 else "-".join(key) for key in keys]
        for name, keys in parts.items()
    }
    return work


def report_activity(dask_scheduler: Any) -> dict[str, object]:
    """Return an Activity as JSON values. The scheduler calls this function by its name."""
    workers = dask_scheduler.workers.values()
    running = {str(one.name): [str(task.key) for task in one.executing if task in one.processing] for one in workers}
    given = sum(len(one.processing) for one in workers) - sum(map(len, running.values()))
    silent_s = {str(one.name): time.time() - one.last_seen for one in workers}
    waiting = len(dask_scheduler.unrunnable) + len(dask_scheduler.queued) + given
    return {"running": running, "waiting": waiting, "silent_s": silent_s}


def find_place(wanted: str | None, members: Sequence[Member]) -> Place | None:
    """Return the place that measures a cell with that `machine`: the largest group of equivalent fitting workers, or None."""
    named = [one for one in members if one.name == wanted]
    alike: dict[str, list[Member]] = defaultdict(list)
    for one in named or members:
        if named or wanted in (None, one.chip):
            alike[one.key].append(one)
    if not alike:
        return None
    chosen = max(alike.values(), key=lambda some: (some[0].no_coreml is None, len(some)))
    first = chosen[0]
    return Place(
        label=name_label(first.name) if named else host_label(first.key),
        key=_digest([first.key, first.name]) if named else first.key,
        names=tuple(one.name for one in chosen),
        host={**first.host, "worker": first.name} if len(chosen) == 1 else first.host,
        no_coreml=first.no_coreml, cannot=first.cannot, asked=first.asked, xcode=first.xcode,
    )  # fmt: skip


def host_label(key: str) -> str:
    return f"HOST-{key[:16]}"


def name_label(name: str) -> str:
    return f"NAME-{name}"


def find_places(settings: RunSettings, wanted: Collection[str | None], *, wait: bool) -> Places:
    """Return the workers that each value of `machine` in a matrix stands for (see bridge.executors). Raises ConfigError."""
    at, certificates = link.settings(settings.executor)
    if not (store := settings.store):
        raise ConfigError(
            "executor=dask: store=URL says where artifacts are shared: a folder that all machines mount, as "
            "file:///mnt/nfs/ane-sweep, or s3://BUCKET/PREFIX (ane-sweep help fleet)"
        )
    if store != mask_credentials(store):
        raise ConfigError(
            f"store={mask_credentials(store)}: it goes to every worker, so it holds no user and no password; fsspec takes those from "
            "each machine's own environment"
        )
    wait_s = settings.executor.wait_s if wait else 0
    until, has_warned = time.monotonic() + wait_s, False
    with link.connected(at, certificates) as client:
        while True:
            members, refused = list_members(client)
            found = {machine: find_place(machine, members) for machine in wanted}
            names = ", ".join(f"{one.name} ({one.chip})" for one in members) or "none"
            there = "; ".join([f"workers: {names}", *refused])
            lacking = ", ".join(sorted(f"machine={machine or 'any'}" for machine, one in found.items() if one is None))
            if not lacking or time.monotonic() >= until:
                break
            if not has_warned:
                has_warned = True
                say(f"no worker fits {lacking}; {there}: waiting up to {wait_s:g} s (executor.wait_s)")
            time.sleep(_LOOK_S)
    for line in refused:
        say(f"doubt: worker {line}")
    places: dict[str | None, Place | str] = {}
    for machine, one in found.items():
        fault = f"machine={machine}: no worker has that chip or name" if machine else "no worker is there"
        places[machine] = one or f"{fault}; {there}; `ane-sweep fleet worker ADDRESS` on a machine adds it"
    return places
