"""`ane-sweep fleet init | scheduler | worker ADDRESS | status ADDRESS | write`: many machines, one sweep"""

import argparse
import os
import sys

from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, certificates, link, members, service
from ane_sweep.fleet.serve import Request
from ane_sweep.folders import user_path
from ane_sweep.outward import mask_credentials
from ane_sweep.terminal import count, format_path, print_result
from ane_sweep.words import Parser, amount, make_integer_reader

LISTEN = f"tls://0.0.0.0:{address.PORT}"


def fleet(args: list[str]) -> int:
    """Make certificates, serve, work, show, or write files for systemd and launchd. Raises ConfigError."""
    given = _parser().read(args)
    given.certificates = certificates.folder(given.certificates)
    if len(given.words) > (4 if given.what == "write" else 1):
        raise ConfigError(f"fleet {' '.join([given.what, *given.words])}: too many words; `ane-sweep fleet --help`")
    if given.store is not None and mask_credentials(given.store) != given.store:
        raise ConfigError(
            f"--store {mask_credentials(given.store)}: a store's address holds no password; fsspec reads it here"
        )
    verbs = {"init": _init, "scheduler": _scheduler, "worker": _worker, "status": _status, "write": _write}
    return verbs[given.what](given)


def _parser() -> Parser:
    parser = Parser(
        "fleet init [FOLDER] | scheduler [ADDRESS] | worker ADDRESS | status ADDRESS | write systemd|launchd scheduler|worker "
        "FOLDER [ADDRESS]",
        "Many machines, one sweep (ane-sweep help fleet). init: certificates, once, for all machines; scheduler: where sweeps "
        f"and workers meet (default: {LISTEN}); worker: this machine takes part; status: who is there, what runs, what waits; "
        "write: a file that starts a scheduler or worker with the machine, with the options that follow. "
        "A sweep goes there with executor=dask executor.address=ADDRESS store=URL.",
        "ane-sweep fleet worker tls://shelf.local:8786 --name m4-a",
    )
    parser.add("what init|scheduler|worker|status|write", "what this machine does")
    parser.add("words ADDRESS", "tls://HOST:PORT; init: FOLDER; write: KIND ROLE FOLDER [ADDRESS]", nargs="*")
    parser.add(
        "--certificates DIR",
        f"what init made (default: ${certificates.VARIABLE}, or fleet in the user's data folder, where a fleet on "
        "loopback makes its own)",
    )
    parser.add("--name NAME", "worker: what machine=NAME asks for (default: this host's name)")
    port = make_integer_reader(1, 65535, "a port")
    parser.add("--port N", "worker: its one port, for TLS (default: a free one)", port, 0)
    parser.add("--chip CHIP", "worker: answer for that chip in place of this machine's own; records say so")
    parser.add("--prepare N", "worker: preparations side by side", make_integer_reader(0, 1000), 1)
    parser.add("--memory-gib N", "worker: what they may use together (default: 85 % of its memory)", amount)
    parser.add("--store URL", "worker: where this machine finds the sweeps' store= (default: there)")
    parser.json(
        "init: files; status: workers, refused, running, waiting, silent_s; write: files, next", "lines of text"
    )
    parser.outputs()
    return parser


def _init(given: argparse.Namespace) -> int:
    place = user_path(given.words[0]).absolute() if given.words else given.certificates
    files = certificates.make(place)
    lines = [
        *map(format_path, files),
        f"whoever holds them may run code on every machine of the fleet: copy {format_path(place)} to each over a safe way, as "
        f"scp -pr {format_path(place)} MAC:",
    ]
    return print_result(given.json, "\n".join(lines), files=list(map(str, files)))


def _scheduler(given: argparse.Namespace) -> int:
    at, place = address.checked(*given.words or [LISTEN]), given.certificates
    certificates.ensure(place, at)
    print(f"a scheduler at {at}, with the certificates in {format_path(place)}; Ctrl-C ends it", flush=True)
    return service.run(lambda: service.scheduler(at, place), "the scheduler")


def _worker(given: argparse.Namespace) -> int:
    from ane_sweep import installed
    from ane_sweep.runner.placement_rules import offered_resources
    from ane_sweep.runner.remote_task import STORE_VARIABLE

    at, name, place = _address(given), service.checked_name(given.name), given.certificates
    installed.need_worker("fleet worker")
    certificates.ensure(place, at)
    os.environ |= {
        members.NAME_VARIABLE: name,
        "ANE_SWEEP_OUT": str(given.out),
        **({members.CHIP_VARIABLE: given.chip} if given.chip else {}),
        **({STORE_VARIABLE: given.store} if given.store else {}),
        **({members.MEMORY_VARIABLE: str(given.memory_gib)} if given.memory_gib else {}),
    }
    me, scratch = members.describe_self(), given.out / "dask"
    scratch.mkdir(parents=True, exist_ok=True)
    able = "Core ML" if me.no_coreml is None else f"no Core ML ({me.no_coreml})"
    print(
        f"worker {name}: {me.chip}, {me.memory_gib:.3g} GiB, {able}, {count(given.prepare, 'preparation')} side by side, "
        f"its cache under {format_path(given.out)}; Ctrl-C ends it",
        flush=True,
    )

    def prepare() -> Request:
        service.admit(at, place, name)
        return service.worker(at, place, given.port, name, offered_resources(me, given.prepare), scratch)

    return service.run(prepare, f"worker {name}")


def _status(given: argparse.Namespace) -> int:
    at = _address(given)
    with link.connected(at, given.certificates) as client:
        there, refused = members.list_members(client)
        now = members.read_activity(client)
    silent_s = {name: round(seconds) for name, seconds in now.silent_s.items() if seconds >= members.SILENT_S}
    running = count(sum(map(len, now.running.values())), "task")
    lines = [f"{at}: {count(len(there), 'worker')}, {running} running, {now.waiting} waiting"]
    for one in there:
        doing = ", ".join(now.running.get(one.name, ())) or "nothing to do"
        if one.name in silent_s:
            doing += f"; nothing heard from it for {silent_s[one.name]} s"
        able = "ANE" if one.no_coreml is None else "no Core ML"
        cuda = ", CUDA" if _cuda(one) else ""
        system = " ".join(str(one.host[key]) for key in ("system", "os_version") if one.host.get(key))
        chip = f"{one.chip} (declared)" if one.declared else one.chip
        lines.append(f"  {one.name}: {chip}, {system}, {one.memory_gib:.3g} GiB, {able}{cuda}: {doing}")
    lines += [f"  {line}" for line in refused]
    return print_result(
        given.json, "\n".join(lines), workers=[_describe(one) for one in there], refused=refused, running=now.running,
        waiting=now.waiting, silent_s=silent_s,
    )  # fmt: skip


def _cuda(one: members.Member) -> bool:
    """Return True if the machine can run a runtime for NVIDIA GPUs."""
    return any(traits.hardware == "NVIDIA GPU" and name not in one.cannot for name, traits in RUNTIMES.items())


def _describe(one: members.Member) -> dict[str, object]:
    return {
        "name": one.name, "chip": one.chip, "declared": one.declared, "system": one.host.get("system"),
        "os_version": one.host.get("os_version"), "memory_gib": round(one.memory_gib, 2), "coreml": one.no_coreml is None,
        "cuda": _cuda(one), "tools": one.tools,
    }  # fmt: skip


def _write(given: argparse.Namespace) -> int:
    match given.words:
        case [kind, "scheduler" as role, folder, *at] if kind in service.UNIT_STEPS:
            label, at = f"ane-sweep-{role}", address.checked(*at or [LISTEN])
        case [kind, "worker" as role, folder, at] if kind in service.UNIT_STEPS:
            label, at = f"ane-sweep-{role}-{service.checked_name(given.name)}", address.checked(at)
        case _:
            raise ConfigError(
                f"fleet {' '.join(['write', *given.words])}: expected {' or '.join(service.UNIT_STEPS)}, scheduler or worker, FOLDER, "
                "and a worker's ADDRESS: "
                f"ane-sweep fleet write systemd worker ~/files tls://HOST:{address.PORT} --name m4-a"
            )
    certificates.ensure(given.certificates, at)
    path = service.write_unit(
        kind, user_path(folder), label, _command(given, role, at), given.out / "fleet" / f"{label}.log"
    )
    then = service.UNIT_STEPS[kind].format(label=label)
    return print_result(given.json, f"{format_path(path)}\n{then}", files=[str(path)], next=then)


def _command(given: argparse.Namespace, role: str, at: str) -> list[str]:
    """Return the command of a scheduler or worker with absolute paths, independent of environment variables."""
    words = ["fleet", role, at, "--certificates", str(given.certificates)]
    if role == "worker":
        words += ["--name", service.checked_name(given.name), "--prepare", str(given.prepare)]
        store = given.store and (given.store if "://" in given.store else str(user_path(given.store).absolute()))
        options = {"--port": given.port, "--chip": given.chip, "--memory-gib": given.memory_gib, "--store": store}
        words += [word for flag, value in options.items() if value for word in (flag, str(value))]
    return [sys.executable, "-P", "-m", "ane_sweep", *words, f"out={given.out}"]


def _address(given: argparse.Namespace) -> str:
    if not given.words:
        raise ConfigError(
            f"fleet {given.what}: which scheduler? ane-sweep fleet {given.what} tls://HOST:{address.PORT}"
        )
    return address.checked(given.words[0])
