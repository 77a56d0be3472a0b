"""`ane-sweep fleet init | scheduler | worker ADDRESS | status ADDRESS`: many machines, one sweep"""

import argparse
import os
from pathlib import Path
from typing import Any

from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates, link, members, service
from ane_sweep.folders import user_path
from ane_sweep.outward import credentials
from ane_sweep.terminal import OK, count, shown, tell
from ane_sweep.words import Parser, amount

LISTEN = f"tls://0.0.0.0:{address.PORT}"


def fleet(args: list[str]) -> int:
    """Make certificates, serve, work, or show. Raises ConfigError."""
    parser = Parser(
        "fleet",
        "init [FOLDER] | scheduler [ADDRESS] | worker ADDRESS | status ADDRESS",
        "Many machines, one sweep (ane-sweep help fleet). init: certificates, once, for all machines; scheduler: where sweeps "
        f"and workers meet (default: {LISTEN}); worker: this machine takes part; status: who is there, what runs, what waits. "
        "A sweep goes there with executor=dask executor.address=ADDRESS store=URL.",
        "ane-sweep fleet worker tls://shelf.local:8786 --name m4-a",
    )
    parser.add_argument(
        "what",
        choices=("init", "scheduler", "worker", "status"),
        metavar="init|scheduler|worker|status",
        help="what this machine does",
    )
    parser.add_argument(
        "at", nargs="?", metavar="ADDRESS", help="tls://HOST:PORT; tcp:// for loopback alone; init: FOLDER"
    )
    parser.add_argument(
        "--certificates",
        metavar="DIR",
        help=f"what init made (default: ${certificates.VARIABLE}, or fleet under the outputs folder)",
    )
    parser.add_argument("--name", metavar="NAME", help="worker: what machine=NAME asks for (default: this host's name)")
    parser.add_argument(
        "--chip", metavar="CHIP", help="worker: answer for that chip in place of this machine's own; records say so"
    )
    parser.add_argument(
        "--prepare", type=_whole, default=1, metavar="N", help="worker: preparations side by side (default: 1)"
    )
    parser.add_argument(
        "--memory-gib", type=_gib, metavar="N", help="worker: what they may use together (default: 85 % of its memory)"
    )
    parser.add_argument(
        "--store", metavar="URL", help="worker: where this machine finds the sweeps' store= (default: there)"
    )
    parser.json("init: files; status: workers, refused, running, waiting", "lines of text")
    parser.outputs()
    given = parser.read(args)
    return {"init": _init, "scheduler": _scheduler, "worker": _worker, "status": _status}[given.what](given)


def _whole(word: str) -> int:
    if not word.isdecimal() or int(word) > 1000:
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number from 0 to 1000")
    return int(word)


def _gib(word: str) -> float:
    try:
        return amount(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{word!r}: expected {error}") from None


def _init(given: argparse.Namespace) -> int:
    place = user_path(given.at).absolute() if given.at else certificates.folder(given.certificates, given.out)
    files = certificates.make(place)
    if given.json:
        tell(files=[str(path) for path in files])
        return OK
    print(*map(shown, files), sep="\n")
    print(
        f"whoever holds them may run code on every machine of the fleet: copy {shown(place)} to each over a safe way, as "
        f"scp -pr {shown(place)} MAC:"
    )
    return OK


def _scheduler(given: argparse.Namespace) -> int:
    at = address.checked(given.at or LISTEN)
    started = service.scheduler(at, _certificates(given))
    print(f"a scheduler at {at}; Dask's dashboard for this machine alone: http://{service.DASHBOARD}", flush=True)
    service.run(started, "the scheduler")
    return OK


def _worker(given: argparse.Namespace) -> int:
    from ane_sweep import installed
    from ane_sweep.runner import errand, needs

    at, name = _address(given), service.named(given.name)
    installed.need_worker("fleet worker")
    if given.store is not None and credentials(given.store) != given.store:
        raise ConfigError(
            f"--store {credentials(given.store)}: a store's address holds no password; fsspec reads it here"
        )
    os.environ |= {
        members.NAME_VARIABLE: name,
        "ANE_SWEEP_OUT": str(given.out),
        **({members.CHIP_VARIABLE: given.chip} if given.chip else {}),
        **({errand.STORE_VARIABLE: given.store} if given.store else {}),
        **({members.MEMORY_VARIABLE: str(given.memory_gib)} if given.memory_gib else {}),
    }
    me = members.me()
    scratch = given.out / "dask"
    scratch.mkdir(parents=True, exist_ok=True)
    started = service.worker(at, _certificates(given), name, needs.offered(me, given.prepare), scratch)
    able = "Core ML" if me.no_coreml is None else f"no Core ML ({me.no_coreml})"
    print(
        f"worker {name}: {me.chip}, {me.memory_gib:.3g} GiB, {able}, {count(given.prepare, 'preparation')} side by side"
    )
    print(f"at {at}, its cache under {shown(given.out)}; Ctrl-C ends it", flush=True)
    service.run(started, f"worker {name}")
    return OK


def _status(given: argparse.Namespace) -> int:
    at = _address(given)
    with link.connected(at, _certificates(given)) as client:
        there, refused = members.of(client)
        running, waiting = members.doing(client)
    if given.json:
        rows = [_plain(one) for one in there]
        tell(workers=rows, refused=refused, running=running, waiting=waiting)
        return OK
    print(
        f"{at}: {count(len(there), 'worker')}, {count(sum(map(len, running.values())), 'task')} running, {waiting} waiting"
    )
    for one in there:
        doing = ", ".join(running.get(one.name, ())) or "nothing to do"
        able = "ANE" if one.no_coreml is None else "no Core ML"
        cuda = ", CUDA" if _cuda(one) else ""
        system = " ".join(str(one.host[key]) for key in ("system", "os_version") if one.host.get(key))
        chip = f"{one.chip} (declared)" if one.declared else one.chip
        print(f"  {one.name}: {chip}, {system}, {one.memory_gib:.3g} GiB, {able}{cuda}: {doing}")
    for line in refused:
        print(f"  {line}")
    return OK


def _cuda(one: members.Member) -> bool:
    """Whether a runtime of an NVIDIA GPU runs there."""
    return any(traits.hardware == "NVIDIA GPU" and name not in one.cannot for name, traits in RUNTIMES.items())


def _plain(one: members.Member) -> dict[str, Any]:
    return {
        "name": one.name, "chip": one.chip, "declared": one.declared, "system": one.host.get("system"),
        "os_version": one.host.get("os_version"), "memory_gib": round(one.memory_gib, 2), "coreml": one.no_coreml is None,
        "cuda": _cuda(one), "tools": one.tools,
    }  # fmt: skip


def _address(given: argparse.Namespace) -> str:
    if given.at is None:
        raise ConfigError(
            f"fleet {given.what}: which scheduler? ane-sweep fleet {given.what} tls://HOST:{address.PORT}"
        )
    return address.checked(given.at)


def _certificates(given: argparse.Namespace) -> Path:
    return certificates.folder(given.certificates, given.out)
