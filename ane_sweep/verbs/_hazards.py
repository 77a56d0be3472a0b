"""The findings of `lint` beyond placement: options, inputs for the rules that run the program, and lines of text."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ane_sweep import installed
from ane_sweep.hazards.rule import RULES, ProgramTrial
from ane_sweep.hazards.search import search
from ane_sweep.mil.effects import select_effects
from ane_sweep.placement.findings import Finding
from ane_sweep.placement.judge import Verdict
from ane_sweep.verbs import run as running
from ane_sweep.words import Parser, make_integer_reader

if TYPE_CHECKING:
    from ane_sweep.reference.features import Feature


KINDS = ("numerics/", "compression/", "load/")  # what the rules of its findings begin with


def add_options(parser: Parser) -> None:
    """Add the options for rules that run the program."""
    parser.add("--numbers", "run the program, and warn of values that fp16 loses (needs the worker's packages)")
    parser.add(
        "--effects NAME,...",
        "run it with effects of the Neural Engine (ane: the known ones); name the op that parts from fp32",
    )
    parser.add("--input [NAME=]FILE", "for --numbers and --effects: as for `run`", default=[], action="append")
    parser.add("--random SEED", "for --numbers and --effects: random values for other inputs", make_integer_reader(0))


def make_trial(given: argparse.Namespace) -> ProgramTrial | None:
    """Return the settings for rules that run the program, or None. Raises ConfigError for an unknown effect."""
    runs = tuple(name for name in ("numbers", "effects") if getattr(given, name))
    if not runs:
        return None
    installed.need_worker(f"ane-sweep lint --{runs[0]}")
    effects = None if given.effects in (None, "ane") else select_effects(given.effects.split(","))
    seed = 0 if given.random is None and not given.input else given.random
    fed = [*given.input, *([f"random inputs, seed {seed}"] if seed is not None else [])]

    def feed(features: Mapping[str, object]) -> dict[str, object]:
        return running.read_inputs(given.input, cast("Mapping[str, Feature]", features), seed)

    return ProgramTrial(runs, feed, ", ".join(fed), effects)


def find(verdict: Verdict, trial: ProgramTrial | None) -> list[Finding]:
    """Return the findings about a package, under the memory limit if it is run. Raises PackageError."""
    if trial is None:
        return search(verdict.prediction)
    with running.within_memory():
        if "effects" in trial.runs and not verdict.prediction.is_ranged:
            running.say_if_slow(verdict.path, trial.effects, "--effects")
        return search(verdict.prediction, trial)


def list_silent(found: Sequence[Finding], trial: ProgramTrial | None) -> list[str]:
    """Return a line for each rule that ran the program and found nothing."""
    runs = trial.runs if trial is not None else ()
    names = {one.rule.partition("/")[2] for one in found}
    fed = f", with {trial.fed}" if trial is not None and trial.fed else ""
    return [
        f"  note  --{rule.runs}: nothing found{fed}"
        for name, rule in RULES.items()
        if rule.runs in runs and name not in names
    ]


def describe(found: Sequence[Finding]) -> list[str]:
    """Return a line for each finding: what, why, confidence, source, and what to do."""
    return [
        f"  {'warn' if one.severity == 'warning' else 'note'}  {one} [{one.confidence}; {one.source}]"
        + (f"; do: {one.do}" if one.do else "")
        for one in found
    ]
