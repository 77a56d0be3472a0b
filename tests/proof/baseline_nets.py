"""The nets of tests/proof/baselines.py, converted by a Python with any version of torch and coremltools.

python tests/proof/baseline_nets.py PACKAGE CHANGE SALT
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

OF_VERSIONS = "another version of the converter"


class Net(nn.Module):
    """A classifier of images; `change` is what is done to it."""

    def __init__(self, change: str, salt: int):
        super().__init__()
        self.change = change
        torch.manual_seed(salt)
        count = 5 if change == "a layer less" else 6
        self.layers = nn.ModuleList(nn.Conv2d(3 if n == 0 else 48, 48, 3, padding=1) for n in range(count))
        self.long = nn.Conv2d(48, 48, (1, 41), padding=(0, 20))
        self.norm, self.head = nn.BatchNorm2d(48), nn.Linear(48, 100)

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if place == 3 and self.change == "an op that the Neural Engine lacks":
                x = torch.cumsum(x, dim=1)
            if place == 3 and self.change == "a kernel too long":
                x = self.long(x)
        made: Tensor = self.head(self.norm(x).mean(dim=(2, 3)))
        return torch.topk(made, 5).values if self.change == "the five best instead of all" else made


class Lookup(nn.Module):
    """Embeddings of tokens, and a network over each."""

    def __init__(self, salt: int):
        super().__init__()
        torch.manual_seed(salt)
        self.table = nn.Embedding(1000, 1024)
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(8))

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.table(ids)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


NETS = (
    "an op that the Neural Engine lacks", "a kernel too long", "a layer less", "the five best instead of all",
    "an input whose size may vary", "images of another size",
)  # fmt: skip


def write_net(path: str, change: str, salt: int) -> None:
    """Convert the net of a change with random weights."""
    import coremltools as ct

    trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # which carries no types
    if change == OF_VERSIONS:
        traced = trace(Lookup(salt).eval(), torch.zeros(1, 32, dtype=torch.long))
        ids = [ct.TensorType("ids", (1, 32), dtype=int)]
        ct.convert(traced, inputs=ids, minimum_deployment_target=ct.target.iOS18).save(path)
        return
    size = 96 if change == "images of another size" else 64
    traced = trace(Net(change, salt).eval(), torch.zeros(1, 3, size, size))
    side: object = ct.RangeDim(32, 128, default=64) if change == "an input whose size may vary" else size
    inputs = [ct.TensorType(f"image{'s' * (salt % 2)}", (1, 3, side, side))]
    ct.convert(traced, inputs=inputs, minimum_deployment_target=ct.target.iOS17).save(path)


if __name__ == "__main__":
    write_net(sys.argv[1], sys.argv[2], int(sys.argv[3]))
