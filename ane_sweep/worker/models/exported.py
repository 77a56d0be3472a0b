"""A file of torch.export or TorchScript (model=exported) as a module of the user's own.

arch   path, form ("export", "torchscript"), inputs (bridge/shapes.py; null: the example of the export), files, samples
"""

from pathlib import Path

import torch
from torch import nn

from ane_sweep.bridge import shapes
from ane_sweep.worker.models import _own, module
from ane_sweep.worker.models._types import Model


class ExportedNet(nn.Module):
    """The program of a file, which takes its inputs in order."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, *program_inputs: torch.Tensor) -> object:
        return self.net(*program_inputs)


def build_given(params: dict[str, Model], inputs: dict[str, Path]) -> module.OwnModule:
    """Load the file and run it once. Raises StageError."""
    arch, example = params["model"]["arch"], None
    with _own.user_code(f"model.path={arch['path']}: loading it"):
        if arch["form"] == "torchscript":
            net: nn.Module = torch.jit.load(str(inputs["file"]), map_location="cpu")
        else:
            program = torch.export.load(inputs["file"])
            example = (program.example_inputs or ((), {}))[0] or None
            if program.range_constraints and (fixed := _draw(arch["inputs"]) or example):  # free sizes cannot be traced
                program = torch.export.export(program.module(check_guards=False), fixed)
            net = program.module(check_guards=False)
            for name in ("train", "eval"):  # an exported module refuses both, and has one mode
                net.__dict__.pop(name, None)
    inner = module.prepare_for_scoring(ExportedNet(net), {"kind": "own"}, None, arch["path"])
    made = module.OwnModule(
        inner, module.find_inputs(arch["path"], arch["inputs"], inner, example), arch["path"]
    ).eval()
    module.run_once(made, example if arch["inputs"] is None else None)
    return made


def _draw(given: dict[str, object] | None) -> tuple[torch.Tensor, ...]:
    """Return tensors of the shapes that the user gave, or none."""
    if not given:
        return ()
    taken = shapes.read(given)
    return tuple(map(torch.from_numpy, module.draw_inputs(taken, next(iter(shapes.points(taken))), seed=0)))


VARIANTS = {"original": build_given}
