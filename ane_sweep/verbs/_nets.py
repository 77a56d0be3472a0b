"""`lint` of files that are converted first, ONNX and exported programs: in a folder that is removed again, with their nodes named."""

import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

import ane_sweep
from ane_sweep import installed
from ane_sweep.errors import ConfigError, PackageError
from ane_sweep.placement.rows import OpRow

DOORS = {".onnx": "onnx", ".pt2": "exported", ".pt": "exported"}  # suffix -> the value of `model` that takes it
_SHOWN = 12
_STEP = re.compile(r"(_cast_fp(16|32))?(_\d+)?$")  # what coremltools adds to a node's name


def check_sizes(text: str) -> str:
    """Return the unchanged value of --inputs. Raises ValueError, whose text says what is expected."""
    try:
        sizes = yaml.safe_load(text)
    except yaml.YAMLError:
        sizes = None
    if not isinstance(sizes, dict):
        raise ValueError("names and sizes, as '{image: [1,3,224,224]}'")
    return text


def convert(path: Path, inputs: str | None, folder: Path) -> Path:
    """Return the package of a file, written below `folder`, in fp16. Raises PackageError if it has no conversion."""
    installed.need_worker(f"ane-sweep lint FILE{path.suffix}")
    sizes = [shlex.quote(f"model.inputs={inputs}")] if inputs else []
    own = Path(tempfile.mkdtemp(dir=folder))  # two files may have one name
    settings = {"chips": ["m4"], "latency": "off", "tracking.enabled": False, "out": str(own / "out")}
    try:
        made = ane_sweep.sweep(
            f"model={DOORS[path.suffix]}", *sizes, **{"model.path": str(path.absolute())}, **settings
        )
    except ConfigError as error:
        raise PackageError(str(error).strip().replace("'model.inputs={", "--inputs '{")) from error
    (record,) = made.records
    try:
        (package,) = made.get(own / "package")
    except ConfigError as error:
        raise PackageError(f"{path}: {record.reason or error}") from error
    return package


def describe_nodes(rows: Sequence[OpRow]) -> list[str]:
    """Return a line for each node off the Neural Engine, in the order in which they run; further ones are counted."""
    off = [row for row in rows if row.preferred != "ane"]
    found = [
        f"  node  {_STEP.sub('', row.site.name) or row.site.name} ({row.site.type}) on the {row.preferred.upper()}: {row.reason}"
        for row in off[:_SHOWN]
    ]
    return found + ([f"  node  and {len(off) - _SHOWN} more (--json names all)"] if len(off) > _SHOWN else [])
