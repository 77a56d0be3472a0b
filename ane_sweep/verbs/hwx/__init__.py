"""`ane-sweep hwx FILE... [--task N] [--program PACKAGE] [--json]`: a compiled program of the Neural Engine, task by task

It shows the compiler's output on any host: .hwx files, net.plist, and folders that contain them.

Exit code 0 if every file was read and contains as many tasks as it declares; 3 if one could not be decoded completely,
or counts differ; 2 if one cannot be read.
"""

import argparse
from pathlib import Path

from ane_sweep.bridge.disk import open_user_file
from ane_sweep.errors import ConfigError
from ane_sweep.hwx import files, netplist
from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.outward import escape_controls
from ane_sweep.placement import chips, compiled, judge, predict
from ane_sweep.terminal import BAD_CONFIGURATION, IN_DOUBT, OK, say, tell
from ane_sweep.verbs.hwx import picture, show
from ane_sweep.words import Parser, make_integer_reader


def hwx(args: list[str]) -> int:
    """Run the verb and return its exit code. Raises ConfigError for a wrong word."""
    given = parse(args)
    found = files.read(given.paths)
    for error in found.errors:
        say(f"error: {error}")
    if given.task is not None or given.svg is not None:
        _one(given, found.programs)
    else:
        beside = None if given.program is None else _compare_with_package(given.program, found.programs)
        if given.json:
            tell(**found.to_dict(), **({} if beside is None else {"beside": beside}))
        elif found.programs or found.plists:
            texts = [*map(show.text, found.programs), *map(netplist.format_text, found.plists)]
            if len(found.programs) > 1:
                texts.insert(len(found.programs), show.compare(found.programs))
            print(escape_controls("\n\n".join([*texts, *([] if beside is None else [compiled.text(beside)])])))
    return BAD_CONFIGURATION if found.errors else OK if found.is_complete else IN_DOUBT


def parse(args: list[str]) -> argparse.Namespace:
    parser = Parser(
        "hwx FILE... [--task N [--svg FILE]] [--program PACKAGE] [--json]",
        "What Core ML's compiler made for the Neural Engine: target chip, compiler and flags, tensors with their padding, constants, "
        "and every task with geometry, engine, operation and what it moves. Several files are compared with the first.",
        "ane-sweep hwx model.hwx --task 0",
        {
            OK: "every file was read, and holds as many tasks as it says",
            BAD_CONFIGURATION: "a wrong word, or a file that cannot be read",
            IN_DOUBT: "the tasks of one are not decoded, or are not as many as it says",
        },
    )
    parser.add("paths FILE", "a .hwx, a net.plist, or a folder in which they are looked for", Path, nargs="+")
    parser.add("--task N", "one task, drawn, with all its registers; the first is 0", make_integer_reader(0))
    parser.add("--svg FILE", "that task (or the first) as a picture", Path)
    program = "what was compiled: its ops beside the tasks they became, and those predicted"
    parser.add("--program PACKAGE", program, Path)
    parser.json(
        "programs (each with target, compiler, tensors, constants, tasks), plists, differences, beside, errors", "text"
    )
    return parser.read(args)


def _one(given: argparse.Namespace, programs: list[CompiledProgram]) -> None:
    """Draw one task of the only program, as text or as SVG."""
    if given.json:
        raise ConfigError("--task and --svg draw; --json has every task already: leave one of them out")
    if len(programs) != 1:
        raise ConfigError(f"--task and --svg draw a task of one program, {len(programs)} were read: name one .hwx")
    (program,) = programs
    wanted = given.task or 0
    if not 0 <= wanted < len(program.tasks):
        raise ConfigError(f"--task {wanted}: {program.path} has {len(program.tasks)} decoded tasks; the first is 0")
    if given.svg is not None:
        try:
            with open_user_file(given.svg) as aside:
                aside.write_text(picture.svg(program, program.tasks[wanted]), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--svg {given.svg}: {error.strerror or error}") from None
    if given.task is not None:
        print(escape_controls(show.one(program, program.tasks[wanted])))


def _compare_with_package(package: Path, programs: list[CompiledProgram]) -> dict[str, object]:
    """Compare a package's ops, with predictions for the programs' family, with the tasks of all programs."""
    if not programs:
        raise ConfigError(f"--program {package}: no .hwx was read to put beside it")
    families = sorted({program.generation.name for program in programs})
    chip = compiled.chip_of(families[0])
    if len(families) > 1 or chip is None:
        raise ConfigError(
            f"--program {package}: wanted programs of one known family, these are of {', '.join(families)}"
        )
    predicted = predict.predict_chain(judge.load(package), chips.get(chip, find_measurements), "cpu_and_ne")
    return compiled.compare_with_tasks(predicted, programs)
