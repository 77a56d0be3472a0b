"""Copies of a package in memory, and writing the rewritten one: its weights are linked or streamed, one at a time."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from ane_sweep.mil import package as packages
from ane_sweep.mil.package import Package
from ane_sweep.mil.weights import BlobWriter, blob_key, program_blob_values


def copy_package(package: Package) -> Package:
    """Return a copy whose program can be changed; the weights are the same."""
    return replace(package, spec=deepcopy(package.spec))


def write_package(source: Package, fixed: Package, target: Path, pipeline: Package | None = None) -> None:
    """Write the rewritten package. Without new or unused weights its weight file is a hard link to the original's.

    Core ML never writes to a package, and neither does this project, so that the link is as good as a copy. In a
    `pipeline` that holds the source the rewritten program takes the place of the source's.
    """
    weights = packages.create(target)
    held = {blob_key(value) for value in program_blob_values(source.spec.mlProgram)}
    needed = {blob_key(value) for value in program_blob_values(fixed.spec.mlProgram)}
    if held == needed and {name for name, _ in needed} == {packages.WEIGHTS_NAME}:
        packages.link_or_copy(source.blobs(packages.WEIGHTS_NAME).path, weights)
    else:
        with BlobWriter(weights) as writer:
            fixed.move_blobs(program_blob_values(fixed.spec.mlProgram), writer, {})
    if pipeline is not None:
        source.spec.CopyFrom(fixed.spec)
    packages.write(target, (pipeline or fixed).spec)


def put_in_place(made: Path, target: Path) -> None:
    """Move a package that lies in a temporary folder to its target in one step; what is there stays until then."""
    before = made.with_name("before")
    if target.exists():
        target.rename(before)
    try:
        made.rename(target)
    except OSError:
        if before.exists():
            before.rename(target)
        raise
