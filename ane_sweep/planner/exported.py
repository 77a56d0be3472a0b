"""model=exported: a file of torch.export (.pt2) or TorchScript (.pt), identified without loading it."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from ane_sweep.bridge.cell import digest
from ane_sweep.bridge.plan import Source
from ane_sweep.errors import ConfigError
from ane_sweep.planner.checkpoint_files import add_samples, file_digest, find_model

KIND, FILE = "exported", "file"  # of a Source; the role that a worker finds it under


def resolve(composed: Mapping[str, object], weights: str, seed: int, digests: Path) -> Source:
    """Return the source of an exported program. Raises ConfigError for other files and for missing inputs."""
    option, path, what = find_model(composed, weights, "FILE.pt2 or FILE.pt", "file")
    form = _find_form(path, what)
    if form == "torchscript" and option.inputs is None:
        raise ConfigError(
            f"{what}: a TorchScript file holds no inputs; give them: 'model.inputs={{NAME: [1,3,224,224]}}'"
        )
    content = file_digest(path, digests)
    arch: dict[str, object] = {
        "path": str(option.path), "form": form, "inputs": option.inputs, "kwargs": {}, "files": {path.name: content},
        "packages": {},
    }  # fmt: skip
    beside = {FILE: path}
    add_samples(option.samples, beside, arch, digests)
    return Source(
        kind=KIND, source=str(option.path), digest=digest([content]), arch=arch, layers=1, max_seq_len=2**20,
        cut_points=999, parameter_bytes=max(4, path.stat().st_size), beside=beside,
    )  # fmt: skip


def _find_form(path: Path, what: str) -> str:
    """Return "export" or "torchscript" by the names in the archive. Raises ConfigError for other files."""
    if not path.is_file():
        raise ConfigError(f"{what}: no such file: {path}; give a .pt2 or .pt file")
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] or name for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise ConfigError(f"{what}: {path} is no file of torch.export or TorchScript ({error})") from None
    if names & {"archive_format", "serialized_exported_program.json"}:
        return "export"
    if "constants.pkl" in names:
        return "torchscript"
    raise ConfigError(
        f"{what}: {path} holds no program (weights alone, of torch.save?); save it with torch.export.save or torch.jit.save, or give its "
        "code as model=module"
    )
