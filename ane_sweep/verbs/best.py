"""`ane-sweep best -m model=minilm precision=fp16,p6,p4 'psnr_db>=40'`: the cell you want without the full product"""

import contextlib
import sys
from typing import TYPE_CHECKING

from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import AGAIN, IN_DOUBT, INTERRUPTED, NOT_ALL_OK, OK, asks_help, tell
from ane_sweep.verbs._pages import read_request
from ane_sweep.words import Parser

if TYPE_CHECKING:
    from ane_sweep.planner.matrix import Request
    from ane_sweep.planner.space import Space

STOPPED = AGAIN


def best(args: list[str]) -> int:
    """Search the matrix. Raises ConfigError."""
    parser = Parser(
        "best [-m] KEY=VALUE... [FIGURE>=NUMBER] [FIGURE<=NUMBER] [minimise=FIGURE,...] [maximise=FIGURE,...] [--explain] [--json]",
        "The best cell of a matrix (of several objectives: those that no other beats) under limits; by default the least "
        "latency_ms: the estimate for the first of chips, which times nothing, or the measured time under Core ML or a "
        "runtime asked for by name. What breaks a limit is dropped as soon as that is known; what must be timed is timed in "
        "the order of its estimate, or as Optuna asks, until no cell left can win. FIGURE: latency_ms, package_mb, psnr_db, "
        "ane_share, estimated_ms (estimated_ms.m4 of that chip), or KIND.NAME (measured.latency_median_ms). "
        "KEY=interval(a,b) or range(a,b) is free, as is "
        "precision.overrides.PATTERN=range(2,9), the bits of weights that match: cells are planned as Optuna asks. KEY: as of "
        "a sweep (ane-sweep --help); search.trials, search.seed, budget_minutes bound it. Quote words with < and > from the shell.",
        "ane-sweep best -m model=minilm precision=fp16,p6,p4 'psnr_db>=40'",
        {NOT_ALL_OK: "no cell fits", IN_DOUBT: "found, but its figures are in doubt", INTERRUPTED: STOPPED},
    )
    parser.add("--explain", "what each axis bought")
    parser.json("goal, summary, how, best, words, trials, never", "text")
    flags = [word for word in args if word in ("--explain", "--json")]
    given = parser.read(["--help"] if asks_help(args) else flags)

    from ane_sweep.search import goal

    wanted, rest = goal.parse([word for word in args if word not in flags])
    if (matrix := _compose_request(rest)) is None:
        return OK
    from ane_sweep.search import answer, run

    request, space = matrix
    wanted = goal.of_settings(request.settings.search, wanted)
    out = outputs_folder(request.settings.out)
    for_people = sys.stderr if given.json else sys.stdout  # what they are told meanwhile
    with contextlib.redirect_stdout(for_people):
        found, records = run.best(request, wanted, out, args, space)
    if given.json:
        tell(**answer.as_json(found, records))
    else:
        print(answer.answer_text(found, records, given.explain))
    winners = answer.choose_winners(found.goal, records)
    sound = all(map(answer.is_sound, winners)) and not answer.describe_unknown_limits(found.goal, winners)
    return NOT_ALL_OK if not winners else OK if sound else IN_DOUBT


def _compose_request(words: list[str]) -> "tuple[Request, Space | None] | None":
    """Return the cells of a matrix, or the first cell of a space; None if the words only ask for help."""
    if not asks_help(words):
        from ane_sweep.planner import compose, free
        from ane_sweep.search import run

        asks_hydra = any(word.split("=")[0] in compose.HYDRA_FLAGS for word in words)
        if not asks_hydra and (space := free.space(words)) is not None:
            return run.first(space), space
    request = read_request(words, "best")
    return None if request is None else (request, None)
