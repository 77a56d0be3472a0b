"""reference: executes ML Programs on any host's CPU, op by op, with the rounding that the program declares.

In fp16 programs every op's result is rounded to fp16, and sums inside an op are fp32; params["numerics"] can choose
another mode (fp16, fp32 or ane), and params["effects"] the known effects of the Neural Engine. Its latency is that of
this runtime on this CPU and says nothing about Apple hardware.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ane_sweep import reference
from ane_sweep.bridge.runtimes import Traits
from ane_sweep.mil import chain, package
from ane_sweep.mil.graph import Op
from ane_sweep.reference import features
from ane_sweep.reference.model import ModelState
from ane_sweep.worker.params import Params
from ane_sweep.worker.runtimes._runtime import Arrays, Runtime

RUNTIME = Traits(
    needs="program", measured="reference runtime on this CPU", hardware="CPU",
    honours=("chunks", "precision", "target", "numerics", "effects"), auto=2, streams=True, exact=("fp16", "ane"), per_gmac_s=0.038,
    warm=("torch", "ane_sweep.worker.runtimes.reference"),
)  # fmt: skip

SIDE_BY_SIDE = (
    4  # inputs that run op by op, each of which holds its activations: constants are prepared once for all of them
)


class ReferenceParams(Params, frozen=True):
    """Parameters of this runtime."""

    numerics: str | None = None
    effects: list[str] | None = None


class ReferenceRuntime(Runtime):
    """A chain of compiled programs; tensors pass between them by name, unchanged.

    function   the function of programs with several; "": the default one
    inputs     names of the inputs from outside
    states     one for each program, made by `reset()`; None: each prediction starts from zeros
    """

    def __init__(
        self,
        paths: list[Path],
        numerics: str | None = None,
        effects: list[str] | None = None,
        function: str = "",
        device: str = "cpu",
    ):
        self.models = [
            reference.load(path, function, numerics=numerics, effects=effects, device=device) for path in paths
        ]
        specs = [model.spec for model in self.models]
        where = paths[0].parent if len(paths) > 1 else paths[0]
        self._where = where
        if len(paths) > 1:
            self._inputs = {
                name: features.describe(item, where) for name, item in chain.find_inputs(specs, function).items()
            }
            self._outputs = {
                name: features.describe(item, where)
                for name, item in chain.find_outputs(specs, where, function).items()
            }
        self.inputs = list(self._inputs if len(paths) > 1 else self.models[0].inputs)
        # a pipeline is as many as it holds
        chunks = sum(len(getattr(model, "models", [model])) for model in self.models)
        self.parts = chunks
        self.realised: dict[str, object] = {**self.models[0].realised, "chunks": chunks}
        said = [model.realised["numerics"] for model in self.models]
        self.realised["numerics"] = next((text for text in said if text != "fp32"), "fp32")

    def reset(self) -> None:
        """Set the states to zeros."""
        self.states = self._new_states()

    def predict(self, inputs: Arrays) -> Arrays:
        """Return outputs by name, of the declared types. Inputs are cast if no information is lost.

        Raises errors.PackageError for a wrong name, shape or kind of input.
        """
        states = self.states or self._new_states()
        if len(self.models) == 1:
            (model,) = self.models
            if self.parts > 1:
                model.marks = self.marks
            outputs: Arrays = model.predict(inputs, states[0])
            return outputs
        return self._run_chain([inputs], [states])[0]

    def predict_each(self, feeds: Iterable[Arrays]) -> Iterator[Arrays]:
        """Yield outputs for each of the inputs, which are sequences of their own; some of them run side by side, op by op."""
        waiting = iter(feeds)
        while some := list(islice(waiting, SIDE_BY_SIDE)):
            states = [self._new_states() for _ in some]
            if len(self.models) > 1:
                yield from self._run_chain(some, states)
            elif self.parts > 1 or not hasattr(self.models[0], "tensors"):  # a pipeline, or a plain model
                yield from (self.models[0].predict(feed, None) for feed in some)
            else:
                (model,) = self.models
                ready = [model.prepare_inputs(feed, state) for feed, (state,) in zip(some, states)]
                yield from (model.to_outputs(made) for made in model.tensors(ready))

    def _new_states(self) -> list[ModelState | None]:
        return [model.new_state() if model.states else None for model in self.models]

    def _run_chain(self, inputs: list[Arrays], states: list[list[ModelState | None]]) -> list[Arrays]:
        """Run all programs in turn on several inputs, each with a state for each program."""
        marks, clock = self.marks, time.perf_counter
        tables: list[dict[str, Any]] = [dict(features.accept_inputs(one, self._inputs, self._where)) for one in inputs]
        for number, model in enumerate(self.models):
            for values, own in zip(tables, states, strict=True):
                state = own[number]
                values.update({name: model.tensor_in(name, values[name]) for name in model.inputs})
                values.update(state.cells if state else {})
            if marks is not None:
                marks.append(clock())
            for values, made in zip(tables, model.tensors(tables)):
                values.update(made)
            if marks is not None:
                marks.append(clock())
        return [
            {name: features.to_output(values[name], feature) for name, feature in self._outputs.items()}
            for values in tables
        ]

    def op_times(self, inputs: Arrays) -> list[tuple[str, str, int, float]]:
        """Return the time of each op of one further prediction, with a clock reading after each; states stay unchanged."""
        found: list[tuple[str, str, int, float]] = []
        models: list[Any] = [one for model in self.models for one in getattr(model, "models", [model])]
        if not all(hasattr(model, "plan") for model in models):  # plain models have no ops
            return []
        plans = [model.plan for model in models]
        last = time.perf_counter()

        def watcher(number: int) -> Callable[[Op, object], None]:
            def watch(op: Op, made: object) -> None:
                nonlocal last
                now = time.perf_counter()
                found.append((op.name, op.type, number, now - last))
                last = now

            return watch

        for number, plan in enumerate(plans, 1):
            plan.session.watch = watcher(number)
        try:
            last = time.perf_counter()
            self.predict(inputs)
        finally:
            for plan in plans:
                plan.session.watch = None
        return found


def load(params: dict[str, object], inputs: dict[str, Path], device: str = "cpu") -> ReferenceRuntime:
    """Compile the programs in `inputs["program"]`. Raises errors.PackageError, errors.UnsupportedOp."""
    return functions(params, inputs, ("",), device)[""]


def functions(
    params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...], device: str = "cpu"
) -> dict[str, ReferenceRuntime]:
    """Load the named functions of the programs; they do not share states yet."""
    settings = ReferenceParams.read(params)
    paths = package.program_paths(inputs["program"])
    return {name: ReferenceRuntime(paths, settings.numerics, settings.effects, name, device) for name in names}
