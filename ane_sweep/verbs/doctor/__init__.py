"""`ane-sweep doctor [--json] [--confirm RUN] [uri=URI] [store=URL]`: what this host can do, and how to get what is missing"""

from concurrent.futures import ThreadPoolExecutor

from rich.text import Text

from ane_sweep import tables
from ane_sweep.bridge.record import read_records
from ane_sweep.errors import ConfigError
from ane_sweep.machine import stand_in
from ane_sweep.planner import inherited
from ane_sweep.store import remote, runs
from ane_sweep.terminal import NOT_ALL_OK, OK, print_result
from ane_sweep.verbs.doctor import confirm, probes
from ane_sweep.verbs.doctor.probes import PROBES, Finding
from ane_sweep.verbs.doctor.world import World
from ane_sweep.words import Parser

WIDTH = 140


def doctor(args: list[str], world: World | None = None) -> int:
    """Run every probe and print the findings; --json for scripts. out=PATH and uri=URI are as in a sweep.

    Exit code 0 when this host can run sweeps (its `needed` probes all say yes), else 1. Raises ConfigError for a wrong word.
    """
    parser = Parser(
        "doctor [--json] [--confirm RUN] [uri=URI] [store=URL] [out=PATH]",
        "What this host can and cannot do, each line a probe that ran, with what it saw and the way to more.",
        "ane-sweep doctor uri=http://127.0.0.1:5000",
        {
            OK: "this host can run sweeps",
            NOT_ALL_OK: "it cannot, or not with that store: a probe that is needed says no; "
            "--confirm: a record contradicts what we assume of Macs",
        },
    )
    parser.json(
        "able, stand_in, probes (each with probe, can, evidence, remedy, needed); --confirm: stand_in, checks", "lines"
    )
    parser.add("--confirm RUN", "check a Mac's run (a name, or last) against what we assume of Core ML")
    parser.add("uri=URI", "the tracking URI to ask (default: $MLFLOW_TRACKING_URI, or sqlite under the outputs folder)")
    parser.add("store=URL", "a store that machines share, to be written, read and deleted in (default: none)")
    parser.outputs()
    given = parser.read(args)
    if given.confirm is not None:
        return confirm.confirm(read_records(runs.find_run(given.out, given.confirm).folder), as_json=given.json)
    if given.store is not None and (wrong := remote.problem("store", given.store)):
        raise ConfigError(wrong)
    world = world or World(out=given.out, uri=given.uri or inherited.tracking_uri())
    with ThreadPoolExecutor(4) as pool:  # most of them wait for a child or a server
        asked = [] if given.store is None else [pool.submit(probes.store, given.store)]
        found = [*pool.map(lambda probe: probe(world), PROBES), *(probe.result() for probe in asked)]
    able = all(finding.can for finding in found if finding.needed)
    script = stand_in.active()
    findings = [vars(finding) for finding in found]
    print_result(
        given.json, as_text(found, able), able=able, stand_in=script.label() if script else None, probes=findings
    )
    return OK if able else NOT_ALL_OK


def as_text(found: list[Finding], able: bool) -> str:
    """Return one line for each probe, yes or no, and under each no its remedy."""
    lines = []
    if script := stand_in.active():
        lines.append(f"stand-in: no Mac takes part; macOS' tools answer from the script {script.label()}")
    rows: list[tuple[str | Text, ...]] = []
    for finding in found:
        rows.append(("yes" if finding.can else "NO" if finding.needed else "no", finding.probe, finding.evidence))
        if not finding.can:
            rows.append(("", Text("->", justify="right"), finding.remedy))
    lines.append(tables.aligned(rows, width=WIDTH))
    missing = [finding.probe for finding in found if finding.needed and not finding.can]
    if missing == ["store"]:
        last = "this host can run sweeps, but not with that store: they would go on without it, and share nothing"
    else:
        last = "this host can run sweeps" if able else f"this host cannot run sweeps: {', '.join(missing)}"
    lines.append(last)
    return "\n".join(lines)
