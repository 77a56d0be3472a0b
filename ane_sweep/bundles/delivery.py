"""Delivery of a cell's program from the cache to a user's folder: its packages, and a README.md on how to load them."""

import os
import shutil
import tempfile
from pathlib import Path

from ane_sweep import outward
from ane_sweep.bridge import disk
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, has_random_weights, select_by, varying_axes
from ane_sweep.bridge.runtimes import program_kind
from ane_sweep.bridge.stages import ALL
from ane_sweep.errors import ConfigError, StoreError
from ane_sweep.mil import chain, package
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.store.cache import Store

_AXES = ("model", "variant", "chunks", "cuts", "pieces", "precision", "compute_units", "seq_len", "target")
_SWIFT = {"all": "all", "cpu_only": "cpuOnly", "cpu_and_gpu": "cpuAndGPU", "cpu_and_ne": "cpuAndNeuralEngine"}
_TYPES = {65552: "float16", 65568: "float32", 65600: "float64", 131104: "int32", 131080: "int8"}  # FeatureTypes.proto


def select_cell(records: list[Record], word: str) -> Record:
    """Return the only cell that a selector word matches. If it matches several, raise ConfigError with words for each of them."""
    records = [record for record in records if record.status != Status.REFUSED] or records  # a refused one made nothing
    if len(records) == 1:
        return records[0]
    run, axes = word.partition(":")[0], varying_axes(records)
    choices = [f"{run}:{select_by(flat_cell(record), axes)}" for record in records]
    more = f" and {len(choices) - 12} more" if len(choices) > 12 else ""
    raise ConfigError(f"{word}: {len(records)} cells; which one? {'  '.join(choices[:12])}{more}")


def deliver(record: Record, store: Store, target: Path) -> list[Path]:
    """Copy a cell's packages, or its asset, into a new or empty folder, all or none; return them in the order they run.

    Raises ConfigError, StoreError.
    """
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
        what = "is a link" if target.is_symlink() else "is there already and not empty"
        raise ConfigError(f"{target}: {what}; give a folder that is to be made")
    artifact = find_program(record, store)
    kind = program_kind(record.realised.get("runtime"))
    paths = package.program_paths(artifact) if kind.packages else sorted(artifact.glob(f"*{kind.suffix}"))
    names = [path.name for path in paths]
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}."))
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written ({error.strerror})") from error
    try:
        for name in names:
            shutil.copytree(artifact / name, aside / name)
        describe = _readme if kind.packages else _describe_asset
        (aside / "README.md").write_text(describe(record, [aside / name for name in names]), encoding="utf-8")
        aside.chmod(0o755)  # mkdtemp leaves 0700
        aside.rename(target)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror or error}); nothing of it is left") from error
    finally:
        disk.remove_tree(aside)
    return [target / name for name in names]


def find_program(record: Record, store: Store) -> Path:
    """Return the timed artifact as an uncompiled package: that of the last stage that makes a program."""
    made = [one for one in record.stages if "program" in ALL[one.stage].leaves and not ALL[one.stage].on_coreml]
    again = f"the command of {record.sweep} makes it (`ane-sweep list` shows the command)"
    if not made or any(one.status not in ("ok", "cached") or one.key is None for one in made):
        why = f"{record.status.value}: {record.reason}" if record.reason else record.status.value
        raise ConfigError(f"this cell has no package to give ({why}); another cell, or a runtime that converts one")
    last = max(made, key=lambda one: ALL[one.stage].order)
    folder = store.intact(last.stage, str(last.key))
    if folder is None:
        raise StoreError(f"its package is not in this cache any more, or was damaged there: {again} again")
    return folder


def _readme(record: Record, paths: list[Path]) -> str:
    specs = [package.read(path, kinds=("mlProgram", "pipeline")).spec for path in paths]
    functions = [one.name for one in specs[0].description.functions] if len(specs[0].description.functions) > 1 else []
    function = str(record.realised.get("function") or (specs[0].description.defaultFunctionName if functions else ""))
    stateful = [bool(chain.function_description(spec, function).state) for spec in specs]
    states = [f"programs[{number}].make_state()" if holds else "None" for number, holds in enumerate(stateful)]
    states, units = states if any(stateful) else [], str(record.cell.get("compute_units", "all"))
    inputs, outputs = chain.find_inputs(specs, function), chain.find_outputs(specs, paths[0].parent, function)
    others = "".join(_describe_function(specs, name, bool(states)) for name in functions if name != function)
    if "cache_position" in inputs:
        room = record.cell.get("seq_len")
        others = f"\n`cache_position` is the token's place, counted from 0; the states have room for {room}.\n{others}"
    several = f" The {len(paths)} run in this order; each takes what those before it give, by name."
    return outward.escape_controls(
        _TEXT.format(
            model=record.cell.get("model"), asked=_list_axes(record, _AXES), sweep=record.sweep,
            order=several if len(paths) > 1 else "", programs=", ".join(f'"{path.name}"' for path in paths),
            names=_list_inputs(specs, function),
            of=f" of function `{function}`" if functions else "", others=others,
            inputs=_features(inputs), outputs=_features(outputs),
            python=units.upper() + (f', function_name="{function}"' if functions else ""), swift=_SWIFT.get(units, "all"),
            states=f"states = [{', '.join(states)}]  # made once; each call changes them\n" if states else "",
            state=", state" if states else "", and_states=", states" if states else "",
            run=f" --function {function}" if functions else "",
            swift_function=f'configuration.functionName = "{function}"\n' if functions else "",
            swift_states="let states = programs.map { $0.makeState() }  // made once; each call changes them\n" if states else "",
            swift_each="(program, state) in zip(programs, states)" if states else "program in programs",
            using=", using: state" if states else "",
        )
    )  # fmt: skip


def _describe_function(specs: list[Model_pb2.Model], name: str, has_states: bool) -> str:
    """Return the README's words on a function that its code does not load."""
    shared = " It reads and writes the same states: give it those of the other." if has_states else ""
    called = f'`function_name="{name}"` and, in place of the names in the code, `{_list_inputs(specs, name)}`.'
    return f"\nFunction `{name}`, with {called}{shared} It takes:\n\n{_features(chain.find_inputs(specs, name))}\n"


def _list_inputs(specs: list[Model_pb2.Model], function: str) -> list[list[str]]:
    """Return the names of what each program's function takes."""
    return [[feature.name for feature in chain.function_description(spec, function).input] for spec in specs]


def _list_axes(record: Record, named: tuple[str, ...]) -> str:
    cell = {axis: value for axis, value in flat_cell(record).items() if axis in named and value is not None}
    random = ["(random weights)"] if has_random_weights(record) else []
    return " ".join([*(f"{as_typed(axis)}={format_value(value)}" for axis, value in cell.items()), *random])


def _describe_asset(record: Record, paths: list[Path]) -> str:
    (path,) = paths
    asked = _list_axes(record, ("model", "variant", "toolchain", "precision", "seq_len"))
    made = {"model": record.cell.get("model"), "asked": asked, "sweep": record.sweep, "path": path.name}
    return outward.escape_controls(_ASSET_TEXT.format(**made, tools=record.realised.get("tools")))


def _features(features: dict[str, Model_pb2.FeatureDescription]) -> str:
    lines = []
    for name, feature in features.items():
        array = feature.type.multiArrayType
        kind = _TYPES.get(array.dataType) if feature.type.WhichOneof("Type") == "multiArrayType" else None
        lines.append(f"- `{name}`: {kind or 'a value'} {list(array.shape)}")
    return "\n".join(lines) or "- none"


_ASSET_TEXT = """# {model}

Core AI's asset of one cell of ane-sweep, sweep {sweep}: `{asked}`. Made by {tools}; a device needs OS 27 to load it.

## Python

```python
import asyncio

import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray


async def predict(values):  # name of an input -> numpy array
    async with AIModelAsset.load("{path}").executable() as model:
        function = model.load_function("main")
        print("takes", function.desc.input_names)
        made = await function({{name: NDArray(np.ascontiguousarray(value)) for name, value in values.items()}})
        return {{name: value.numpy() for name, value in made.items()}}
```
"""

_TEXT = """# {model}

Packages of one cell of ane-sweep, sweep {sweep}: `{asked}`.{order}

Inputs{of}:

{inputs}

Outputs{of}:

{outputs}
{others}
## Python, on a Mac

```python
import coremltools as ct
import numpy as np

programs = [ct.models.MLModel(path, compute_units=ct.ComputeUnit.{python}) for path in ({programs},)]
{states}taken_as = {{"float16": np.float32, "int64": np.int32}}  # by predict
values = {{}}  # name of an input -> numpy array
for program, names{state} in zip(programs, {names}{and_states}):
    given = {{name: np.asarray(values[name]) for name in names}}
    given = {{name: value.astype(taken_as.get(str(value.dtype), value.dtype)) for name, value in given.items()}}
    values |= program.predict(given{state})
```

On any host: `ane-sweep run PACKAGE{run} --input NAME=FILE.npy`.

## Swift

```swift
import CoreML

let configuration = MLModelConfiguration()
configuration.computeUnits = .{swift}
{swift_function}var programs: [MLModel] = []
for path in [{programs}] {{
    let compiled = try await MLModel.compileModel(at: URL(fileURLWithPath: path))
    programs.append(try MLModel(contentsOf: compiled, configuration: configuration))
}}
{swift_states}var values: [String: MLFeatureValue] = [:]  // the name of an input and its value
for {swift_each} {{
    let names = program.modelDescription.inputDescriptionsByName.keys
    let taken = Dictionary(uniqueKeysWithValues: names.compactMap {{ name in values[name].map {{ (name, $0) }} }})
    let given = try await program.prediction(from: MLDictionaryFeatureProvider(dictionary: taken){using})
    for name in given.featureNames {{ values[name] = given.featureValue(for: name) }}
}}
```

An app compiles a package when it is built: add it to the Xcode project, and load the class that Xcode makes of it.
"""
