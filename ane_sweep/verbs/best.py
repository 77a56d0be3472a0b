"""`ane-sweep best -m model=minilm precision=fp16,p6,p4 'psnr_db>=40'`: the cell you want without the full product"""

import contextlib
import sys

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK, tell
from ane_sweep.verbs._matrix import requested
from ane_sweep.words import Parser, asks_help


def best(args: list[str]) -> int:
    """Search the matrix. Raises ConfigError."""
    parser = Parser(
        "best",
        "[-m] KEY=VALUE... [FIGURE>=NUMBER] [FIGURE<=NUMBER] [minimise=FIGURE,...] [maximise=FIGURE,...] [--explain] [--json]",
        "The best cell of a matrix (of several objectives: those that no other beats) under limits, without running all of "
        "it: what breaks a limit is dropped as soon as that is known, the rest is timed in the order of its estimate, or "
        "as Optuna asks where nothing predicts, until no cell left can win. FIGURE: latency_ms, package_mb, psnr_db, "
        "ane_share, estimated_ms, or KIND.NAME. KEY: as of a sweep (ane-sweep --help); search.trials, search.seed, "
        "budget_minutes bound it. Quote words with < and > from the shell.",
        "ane-sweep best -m model=minilm precision=fp16,p6,p4 chunks=1,2 'psnr_db>=40' 'package_mb<=25' minimise=latency_ms",
        {NOT_ALL_OK: "no cell fits", IN_DOUBT: "found, but its figures are in doubt"},
    )
    parser.add_argument("--explain", action="store_true", help="what each axis bought")
    parser.json("goal, how, best, trials, never", "text")
    flags = [word for word in args if word in ("--explain", "--json")]
    given = parser.read(["--help"] if asks_help(args) else flags)

    from ane_sweep.search import goal

    wanted, rest = goal.parse([word for word in args if word not in flags])
    if (request := requested(rest, "best")) is None:
        return OK
    from ane_sweep.bridge.record import Status
    from ane_sweep.search import answer, run

    wanted = goal.of_settings(request.settings["search"], wanted)
    out = outputs_folder(request.settings["out"])
    for_people = sys.stderr if given.json else sys.stdout  # what they are told meanwhile
    with contextlib.redirect_stdout(for_people):
        found, records = run.best(request, wanted, out, args)
    if given.json:
        tell(**answer.as_json(found, records))
    else:
        print(answer.said(found, records, given.explain))
    winners = answer.winners(wanted, records)
    return NOT_ALL_OK if not winners else OK if all(one.status == Status.OK for one in winners) else IN_DOUBT
