"""Apply rewrites to a package: each on a trial copy, proven place by place, and kept if the prediction or accuracy gains."""

import math
import tempfile
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.fix import figures, functions, host_proof, interface, need, output, proof, rewrite, whole
from ane_sweep.fix.figures import Figures
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.interface import BY_NAME
from ane_sweep.fix.proof import Proof, Region
from ane_sweep.fix.rewrite import REWRITES
from ane_sweep.fix.trials import PlaceChange, Report, RewriteTrial
from ane_sweep.memory_limits import pause_collection
from ane_sweep.mil import graph as mil
from ane_sweep.mil import package as packages
from ane_sweep.mil import pipeline
from ane_sweep.mil.package import Package
from ane_sweep.mil.weights import program_blob_values
from ane_sweep.placement import chips
from ane_sweep.placement.chips import Chip

_MOST_ROUNDS = 8  # through all rewrites; each but the last changed the program
_MOST_PASSES = 4  # of one rewrite, as a place may only match when another one has been changed
_MOST_DROPPED = 3  # places of a rewrite that the proof of the whole refuses before all of it is left out

Failures = dict[tuple[str, str], str]  # (rewrite, place): the problem of its proof


@pause_collection()
def fix(
    path: Path, out: Path | None = None, chip: str = "m4", only: tuple[str, ...] = (), sizes: str = "", insist: bool = False
) -> Report:  # fmt: skip
    """Rewrite a package for a chip and write it to `out`, in place of what is there; without `out` only report.

    Rewrites that change the interface are applied if `only` names them, before the others; `sizes` is for them.
    Nothing is written if no rewrite is kept. A pipeline's ML Program is rewritten, its interface never. With `insist` a rewrite
    may take the whole program off the Neural Engine, and an accuracy rewrite may cost time though the program does not need
    it. A rewrite, or a place of one, without which alone the whole program computes the same is left out with that reason.
    Raises PackageError for a package that cannot be read, ConfigError for an unknown chip or rewrite.
    """
    names, wanted = rewrite.choose(only), chips.get(chip)
    outer = packages.read(path, kinds=pipeline.KINDS)
    package, _ = pipeline.find_program(outer)
    by_name = BY_NAME if package is outer else {}
    if left_out := [name for name in only if name in BY_NAME and name not in by_name]:
        raise PackageError(
            f"{path}: a pipeline, whose other models read its interface: no --only {', '.join(left_out)}"
        )
    for name in {value.blobFileValue.fileName for value in program_blob_values(package.spec.mlProgram)}:
        if not package.has(name):
            raise PackageError(f"{package.path}: {name} is missing; a rewrite copies the weights")
    folder = out.parent if out is not None else None
    with tempfile.TemporaryDirectory(prefix=".ane-sweep-", dir=folder) as scratch:
        work = Workpiece(package, wanted, Path(scratch), insist)
        for name in by_name:
            if name in only:
                work.change_interface(name, sizes)
            elif not only:
                work.offer(name)
        proven = work.run(names)
        report = Report(path, wanted.chip, work.first, work.figures, work.trials, proven)
        if report.applied and out is not None:
            made = Path(scratch) / out.name
            output.write_package(package, work.package, made, None if package is outer else outer)
            output.put_in_place(made, out)
            report.written = out
    return report


class Workpiece:
    """A package under way: its present program, the figures of this, and all trials.

    `source` is the program before the rewrites that keep its interface, `kept` the program after each of these that was kept.
    `settled` holds what stays when the work begins again: changes of the interface, and what the proof of the whole refused.
    """

    def __init__(self, package: Package, chip: Chip, scratch: Path, insist: bool = False):
        self.source, self.chip, self.scratch, self.insist = package, chip, scratch, insist
        self.first = self.start_figures = figures.measure_figures(package, chip)
        self.settled: list[RewriteTrial] = []
        self.excluded: set[tuple[str, str]] = set()
        self.proofs: dict[tuple[object, ...], Proof | str] = {}
        self.start()

    def start(self) -> None:
        """Begin again, with the program as it is before the rewrites that keep its interface."""
        self.figures, self.trials = self.start_figures, list(self.settled)
        self.kept: list[tuple[str, Package]] = []
        self.tried: dict[str, tuple[int, list[RewriteTrial]]] = {}
        self.turn_to(self.source)

    def turn_to(self, package: Package, graphs: dict[str, Graph] | None = None) -> None:
        """Let a package be the present one; `graphs` hold its ops, if they are open."""
        self.package, self.graphs = package, functions.open_functions(package, self.scratch, graphs)

    def run(self, names: list[str]) -> str:
        """Apply rewrites until none is kept, and leave out what the proof of the whole refuses. Return the proof as text."""
        self.start()
        while True:
            left = [name for name in names if self.count_dropped(name) < _MOST_DROPPED]
            for _ in range(_MOST_ROUNDS):
                if not self.try_all(left):
                    break
            if not self.kept:
                if any(trial.status == "applied" for trial in self.settled):
                    return "with the host's part it computes the same on random inputs"
                return "nothing was changed"
            found = whole.prove(self.source, self.package, [name for name, _ in self.kept])
            if found.problem is None:
                return found.text
            self._drop(found.problem)

    def count_dropped(self, name: str) -> int:
        """Return how many places of a rewrite the proof of the whole program refused."""
        return sum(trial.rewrite == name for trial in self.settled)

    def _drop(self, problem: str) -> None:
        """Exclude the place with which the whole program first computes something else, and begin again."""
        programs = [self.source, *(package for _, package in self.kept)]
        names = [name for name, _ in self.kept]
        step = whole.find_first(
            len(names), lambda count: whole.prove(self.source, programs[count], names[:count]).problem is None
        )
        name = names[step - 1]
        self.turn_to(programs[step - 1])
        full = RewriteAttempt(self, name)
        full.apply()
        changes = full.changes

        def holds(count: int) -> bool:
            attempt = RewriteAttempt(self, name, count)
            attempt.apply()
            return whole.prove(self.source, attempt.package, names[:step]).problem is None

        place = changes[whole.find_first(len(changes), holds) - 1]
        self.excluded.add((place.rewrite, place.place))
        reason = f"{place.rewrite} at {place.place} is left out, as with it {problem}"
        if self.count_dropped(name) + 1 == _MOST_DROPPED:
            reason += "; so are all other places, after as many as this"
        self.settled.append(RewriteTrial(name, "refused", reason, self.first, self.first))
        self.start()

    def offer(self, name: str) -> None:
        """Report a rewrite that changes the interface and matches: it is not applied without its name."""
        if interface.load(name).find(list(self.graphs.values())):
            reason = f"it changes the interface: {BY_NAME[name].host}; `--only {name}` applies it"
            self.settled.append(RewriteTrial(name, "by name", reason, self.figures, self.figures))

    def change_interface(self, name: str, sizes: str) -> None:
        """Apply a rewrite that changes the interface, if it matches, and prove it with the host's new part."""
        module = interface.load(name)
        places = module.find(list(self.graphs.values()))
        if not places:
            return
        try:
            made = module.change(output.copy_package(self.package), sizes)
            found = host_proof.prove_change(self.package, made)
        except (ValueError, PackageError) as error:
            self.settled.append(RewriteTrial(name, "refused", str(error), self.figures, self.figures))
            return
        after = figures.measure_figures(functions.keep_default(made.package), self.chip)
        problem = found.problem
        reason = problem or f"{made.note}; asked for by name ({figures.find_gain(self.figures, after)[1]})"
        changes = [PlaceChange(name, place, [], [], True) for place in places if problem is None]
        status = "applied" if problem is None else "refused"
        self.settled.append(RewriteTrial(name, status, reason, self.figures, after, changes, found))
        if problem is None:
            self.source, self.start_figures = made.package, figures.measure_figures(made.package, self.chip)
            self.start()

    def try_all(self, names: list[str]) -> bool:
        """Try every rewrite once in order; return True if one was kept. Judgements of earlier rounds are replaced."""
        self.trials = [trial for trial in self.trials if trial.status == "applied" or not trial.changes]
        kept = False
        for name in names:
            one = REWRITES[name]
            if one.chips and self.chip.chip not in one.chips and self.chip.family not in one.chips:
                continue
            kept = self._try(name) or kept
        return kept

    def _try(self, name: str) -> bool:
        """Try a rewrite, once more without the places whose proof failed; not again on the program for which it was refused."""
        tried_on, again = self.tried.get(name, (-1, []))
        if tried_on == len(self.kept):
            self.trials += again
            return False
        self.tried[name] = len(self.kept), []
        refused: list[str] = []
        while True:
            attempt = RewriteAttempt(self, name)
            failed = attempt.apply()
            if not failed:
                break
            refused += [f"{place}: {problem}" for (_, place), problem in failed.items()]
            self.excluded |= set(failed)
        if refused:
            reason = f"{len(refused)} places not proven equal, as {refused[0]}"
            self.trials.append(RewriteTrial(name, "refused", reason, self.figures, self.figures))
        if not attempt.changes:
            return False
        trial = attempt.judge()
        self.trials.append(trial)
        if trial.status != "applied":
            self.tried[name][1].append(trial)
            return False
        self.figures = trial.after
        self.kept.append((name, attempt.package))
        self.turn_to(attempt.package, attempt.graphs)
        return True


class RewriteAttempt:
    """One rewrite (and those that go with it) on a program, at no more than `most` places; `work` keeps the program as it is."""

    def __init__(self, work: Workpiece, name: str, most: float = math.inf):
        self.work, self.name, self.most, self.package, self.graphs = work, name, most, work.package, work.graphs
        self.changes: list[PlaceChange] = []
        self.regions: dict[str, list[Region]] = {}  # by function; of accuracy rewrites alone
        self.worst: Proof | None = None
        self.unproven: str | None = None

    def apply(self) -> Failures:
        """Apply the rewrites to all functions. Return the places whose proof failed, with the problem."""
        sites = {function: self._find_sites(graph, self.name) for function, graph in self.graphs.items()}
        if not any(sites.values()):
            return {}
        self.work.graphs = functions.open_functions(self.package, self.work.scratch, self.graphs)
        failed: Failures = {}
        for function, graph in self.graphs.items():
            self.function, found = function, sites[function]
            for name in (self.name, *REWRITES[self.name].then):
                for count in range(_MOST_PASSES):
                    if count or name != self.name:
                        found = self._find_sites(graph, name)
                    if not self._apply_to(graph, name, found, failed):
                        break
        self.package = output.copy_package(self.package)
        for function, graph in self.graphs.items():
            mil.view_program(self.package, function).block.CopyFrom(graph.write_block())
        return failed

    def _find_sites(self, graph: Graph, name: str) -> list[rewrite.Site]:
        return [site for site in rewrite.find_sites(name, graph) if (name, site.name) not in self.work.excluded]

    def _apply_to(self, graph: Graph, name: str, sites: list[rewrite.Site], failed: Failures) -> bool:
        """Apply one rewrite to the places where it matches now; return True if it changed one."""
        module, changed = rewrite.load(name), len(self.changes)
        for site in sites:
            place = site.name
            if not site.is_alive or len(self.changes) >= self.most:
                continue
            graph.begin_site()
            try:
                module.apply(graph, site)
            except ValueError as error:
                failed[name, place] = f"the rewrite does not fit: {error}"
                continue
            region = proof.collect_region(graph)
            found = self._prove(graph, name, region, site.masks)
            if isinstance(found, str):
                self.unproven = found
            elif found.problem is not None:
                failed[name, place] = found.problem
            elif self.worst is None or found.fp16_after < self.worst.fp16_after:
                self.worst = found
            if REWRITES[name].kind == "accuracy":
                self.regions.setdefault(self.function, []).append(region)
            self.changes.append(PlaceChange(name, place, region.removed, region.added, not isinstance(found, str)))
        return len(self.changes) > changed

    def _prove(self, graph: Graph, name: str, region: proof.Region, masks: tuple[str, ...]) -> Proof | str:
        """Return the proof of a region, from memory if an equal one was proven, or the reason why it cannot be run."""
        one, key = REWRITES[name], (name, *proof.sign(region))
        if key not in self.work.proofs:
            try:
                found = proof.prove_region(
                    graph, region, one.bound, one.scales, one.kind == "accuracy", one.lost_db, one.mends_nan, masks
                )
            except PackageError as error:
                self.work.proofs[key] = str(error)
            else:
                self.work.proofs[key] = found
        return self.work.proofs[key]

    def judge(self) -> RewriteTrial:
        """Return the trial: a placement rewrite must improve the prediction, an accuracy rewrite is proven to help."""
        before, after = self.work.figures, figures.measure_figures(self.package, self.work.chip)
        helps, reason = figures.find_gain(before, after, self.work.insist)
        if REWRITES[self.name].kind == "accuracy":
            helps, reason = self._judge_accuracy(before, after, None if helps or self.work.insist else reason)
        status = "applied" if helps else "refused"
        return RewriteTrial(self.name, status, reason, before, after, self.changes, self.worst, self.unproven)

    def _judge_accuracy(self, before: Figures, after: Figures, price: str | None) -> tuple[bool, str]:
        """Judge an accuracy rewrite. `price`: the reason for which a placement rewrite would be refused."""
        if self.worst is None:
            return False, f"its gain is not proven: {self.unproven}"
        if after.refused > before.refused:
            return False, f"the Neural Engine refuses {after.refused - before.refused} more ops"
        gain = f"in the Neural Engine's arithmetic {self.worst.ane_before:.1f} -> {self.worst.ane_after:.1f} dB"
        if price is None or price == figures.NO_GAIN:
            return True, gain
        try:
            found = [need.find_need(self.work.package, self.package, name, one) for name, one in self.regions.items()]
        except PackageError as error:
            return True, f"{gain} at the place alone, as {error}; {price}"
        if seen := [one for one in found if one is not None]:
            return True, f"in the Neural Engine's arithmetic {seen[0]}; {price}"
        return False, (
            f"not needed: with {need.HEADROOM:g} times the values that random inputs make here nothing is lost; {price}; "
            f"`--only {self.name}` applies it"
        )
