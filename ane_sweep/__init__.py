"""ane-sweep: a declarative experiment-matrix runner for the Apple Neural Engine and Core ML.

    import ane_sweep
    found = ane_sweep.sweep("model=minilm variant=original,split_einsum", chunks=[1, 2])
    found.frame(); found.report()

These functions do the same as the verbs of the command line (ane_sweep/docs/notebook.md). A user's error raises a type
of ane_sweep.errors, with the sentence that the terminal would print. Importing this loads nothing heavy.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import numpy as np

    from ane_sweep.api.sweeps import Found, Planned, Sweep
    from ane_sweep.hwx.program import CompiledProgram
    from ane_sweep.placement.judge import Verdict

__version__ = "0.1.0"


def plan(*words: str, **axes: Any) -> "Planned":
    """Return a plan of a matrix: what would run, be shared, cost and be refused; run nothing. It takes the arguments of `sweep`."""
    from ane_sweep.api import sweeps

    return sweeps.plan(words, axes)


def sweep(*words: str, **axes: Any) -> "Sweep":
    """Run a matrix, each task in a fresh process, and return its records. In Jupyter with a bar; elsewhere it is quiet.

    words   as after `ane-sweep -m`: "model=minilm chunks=1,2", "+sweep=quick", "latency.samples=50 out=/tmp/out"
    axes    the same as Python values: a list is several values of an axis, or, of a key that takes a list (chips), that
            list; `latency={"samples": 50}` is latency.samples=50

    An interrupted sweep continues where it stopped if called again. Raises ConfigError for a wrong word or a matrix
    that is refused as a whole, StoreError for an outputs folder that cannot be used, Unfinished if the system stopped
    it, and KeyboardInterrupt. A cell that fails raises nothing: its record says so, and `.ok` is False.
    """
    from ane_sweep.api import sweeps

    return sweeps.sweep(words, axes)


def load(run: "str | os.PathLike[str]" = "last", out: "str | os.PathLike[str] | None" = None) -> "Sweep":
    """Return a finished sweep: "last", a run's name, or a run's folder.

    out   the outputs folder, if `run` is a name: None is $ANE_SWEEP_OUT or ./outputs

    Raises RunNotFound with the existing names, and StoreError for records that cannot be read.
    """
    from ane_sweep.api import sweeps

    return sweeps.load(run, out)


def best(*words: str, **axes: Any) -> "Found":
    """Search a matrix for its best cell, timing as few cells as that needs; return the winners and all records.

    words   as `sweep`'s, with limits: "model=minilm precision=fp16,p6,p4", "psnr_db>=40 package_mb<=25"
    axes    as `sweep`'s; minimise and maximise name figures: minimise="package_mb", minimise=["latency_ms", "package_mb"]

    Raises what `sweep` does. `.best` is empty if no cell keeps to the limits.
    """
    from ane_sweep.api import sweeps

    return sweeps.best(words, axes)


def get(run: str, folder: "str | os.PathLike[str]", *, out: "str | os.PathLike[str] | None" = None) -> "list[Path]":
    """Copy one cell's packages into a new folder, with a README.md on how to load them; return their paths.

    run   "last:variant=split_einsum,chunks=2", or a run's name in place of last

    Raises RunNotFound, ConfigError if the words mean several cells, and StoreError.
    """
    from ane_sweep.api import sweeps

    return sweeps.get(run, folder, out)


def lint(
    package: "str | os.PathLike[str]",
    *,
    chip: str = "m4",
    compute_units: str = "cpu_and_ne",
    min_ane_share: float = 0.9,
    share: str = "ops",
) -> "Verdict":
    """Predict the unit that each op of a package runs on, and why some stay off the Neural Engine. It reads protobufs
    only.

    package        a .mlpackage, a .mlmodelc, or a folder of chunks; `.ok` requires the share `min_ane_share`, from 0 to
                   1
    compute_units  the units that Core ML may use: all, cpu_and_ne, cpu_and_gpu or cpu_only
    share          the base of the share: "ops", or "cost", their cost in Core ML's planner

    Raises PackageError for what cannot be read, ConfigError for an unknown chip or word.
    """
    from ane_sweep.machine.calibrated import find_measurements
    from ane_sweep.placement import judge

    return judge.judge(
        package,
        chip=chip,
        compute_units=compute_units,
        min_ane_share=min_ane_share,
        share=share,
        measured=find_measurements,
    )


def read_hwx(path: "str | os.PathLike[str]") -> "CompiledProgram":
    """Read a compiled program of the Neural Engine (.hwx): target, compiler, tensors, constants and tasks. On any host.

    Raises PackageError for what cannot be read.
    """
    from pathlib import Path

    from ane_sweep.hwx import program

    return program.read(Path(path))


def predict(
    package: "str | os.PathLike[str]",
    inputs: "Mapping[str, Any] | np.ndarray[Any, Any]",
    *,
    function: str = "",
    numerics: str | None = None,
    device: str = "cpu",
) -> "dict[str, np.ndarray[Any, Any]]":
    """Return one prediction of any ML Program by the reference runtime, on any host, in this process: arrays by name.

    inputs    name -> array of the shape that the package declares; one array alone where there is one input
    function  of a multifunction package; "" is its default one. States begin at zero with every call
    numerics  "fp16", "fp32" or "ane"; None: as the program declares. `device`: "cpu" or "cuda"

    Raises PackageError for a package that cannot be read, or a wrong name or shape of an input; ConfigError where PyTorch is
    not installed or a word is wrong.
    """
    from pathlib import Path

    from ane_sweep import installed
    from ane_sweep.errors import ConfigError, PackageError, suggestion

    installed.need_worker("ane_sweep.predict")
    devices = ("cpu", "cuda")
    if device not in devices:
        raise ConfigError(f"device={device}: unknown{suggestion(device, devices)}; choices: {', '.join(devices)}")
    from ane_sweep import reference

    model = reference.load(Path(package), function, numerics=numerics, device=device)
    if not isinstance(inputs, Mapping):
        if len(model.inputs) != 1:
            raise PackageError(f"{package}: which input is it? Give {{name: array}}; inputs: {', '.join(model.inputs)}")
        inputs = {next(iter(model.inputs)): inputs}
    outputs: dict[str, np.ndarray] = model.predict(dict(inputs), model.new_state() if model.states else None)
    return outputs


if "IPython" in sys.modules:  # it completes keywords by a function's signature
    from ane_sweep.api import name_axes

    name_axes(plan, sweep, best)
