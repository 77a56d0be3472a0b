"""Nets of repeated blocks, drawn by number, in which what a block holds decides further constants: an element, a slice, a
maximum, a comparison. In most of them it is the same in all blocks but a later one, so that early blocks do not show it."""

import random

import torch
from torch import nn

WIDTH = 16
PICKS = {
    "vector": lambda b: b.vector, "element": lambda b: b.vector[3], "slice": lambda b: b.vector[4:8], "scalar": lambda b: b.scalar,
    "bias": lambda b: b.layer.bias, "bias element": lambda b: b.layer.bias[1:2], "row": lambda b: b.layer.weight.flatten(1)[2],
    "matrix element": lambda b: b.layer.weight.flatten(1)[2, 3], "small": lambda b: b.small, "small part": lambda b: b.small[1:],
    "table": lambda b: b.table, "table row": lambda b: b.table[1], "two": lambda b: b.vector * b.table[0],
}  # fmt: skip
REDUCTIONS = {
    "none": lambda v: v, "max": lambda v: v.max(), "min": lambda v: v.amin(), "sum": lambda v: v.sum(), "mean": lambda v: v.mean(),
    "norm": lambda v: v.norm(), "largest": lambda v: v.abs().amax(-1, keepdim=True), "any": lambda v: (v > 1.2).any().float(),
    "all": lambda v: (v < 1.2).all().float(), "where": lambda v: v.reshape(-1).argmax().float(), "count": lambda v: (v > 1.2).sum().float(),
    "first": lambda v: v.reshape(-1)[:1], "sorted": lambda v: v.reshape(-1).sort().values[-1],
}  # fmt: skip
READINGS = {
    "as it is": lambda v: v, "compared": lambda v: (v > 1.2).float(), "equal": lambda v: (v == 1.5).float(), "sign": torch.sign,
    "rounded": torch.round, "floor": torch.floor, "whole": lambda v: v.long().float(), "clamped": lambda v: v.clamp(min=1.2),
    "between": lambda v: v.clamp(-1.0, 1.2), "sharp": lambda v: torch.sigmoid(100 * (v - 1.2)), "negative": torch.relu,
    "scaled": lambda v: 2 * v + 1, "root": lambda v: (v * v + 1e-5).rsqrt(), "tiny": lambda v: v * 1e-8,
    "half": lambda v: 0.5 + 0.5 * (v > 1.2),
    "higher": lambda v: torch.maximum(v, torch.tensor(1.2)), "remainder": lambda v: v % 1.0, "tanh": torch.tanh,
}  # fmt: skip
USES = {
    "times": lambda x, y, v: x + y * v, "plus": lambda x, y, v: x + y + v, "over": lambda x, y, v: x + y / (v + 3.0),
    "chosen": lambda x, y, v: torch.where((v > 1.0).expand(WIDTH), x, y), "power": lambda x, y, v: x + y.abs().clamp(0.1) ** v,
    "matrix": lambda x, y, v: x + y @ (v * torch.ones(WIDTH, WIDTH)), "least": lambda x, y, v: x + torch.minimum(y, v),
}  # fmt: skip


class Drawn:
    """What one number stands for."""

    def __init__(self, number: int):
        draw = random.Random(number)
        self.count = draw.choice((9, 9, 10, 11))  # so deep that it is grown unasked
        self.late = draw.randrange(2, self.count - 1)
        self.until = draw.choice((self.late, self.count))  # the last block that is as the late one
        self.layer = draw.choice(("linear", "linear", "conv", "conv with norm"))
        self.ways = [
            tuple(draw.choice(list(table)) for table in (PICKS, REDUCTIONS, READINGS, USES))
            for _ in range(draw.choice((1, 1, 2)))
        ]
        self.moved = draw.choice(("element", "element", "all", "half", "zero", "one"))
        self.tensor = draw.choice(("vector", "vector", "scalar", "bias", "weight", "small", "table", "norm"))
        self.others = draw.choice(("drawn", "drawn", "same", "grid"))
        self.before, self.after = draw.sample((0.0, 0.3, 0.5, 1.0, 1.1, 1.5, 2.0, -0.7, 1000.0, 1e-7), 2)
        self.seed = number

    def __str__(self):
        return f"net {self.seed}: {vars(self)}"


class Block(nn.Module):
    def __init__(self, drawn: Drawn):
        super().__init__()
        conv = drawn.layer != "linear"
        self.layer = nn.Conv1d(WIDTH, WIDTH, 1) if conv else nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if drawn.layer == "conv with norm" else nn.LayerNorm(WIDTH)
        self.vector, self.table = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(3, WIDTH))
        self.small, self.scalar = nn.Parameter(torch.randn(4)), nn.Parameter(torch.tensor(0.5))
        self.ways, self.conv = drawn.ways, conv

    def forward(self, x):
        y = self.layer(x.transpose(1, 2) if self.conv else x)
        y = (
            self.norm(y).transpose(1, 2)
            if isinstance(self.norm, nn.BatchNorm1d)
            else self.norm(y.transpose(1, 2) if self.conv else y)
        )
        for pick, reduction, reading, use in self.ways:
            value = READINGS[reading](REDUCTIONS[reduction](PICKS[pick](self)))
            if value.dim() and value.shape[-1] not in (1, WIDTH):
                value = value.repeat(-(-WIDTH // value.shape[-1]))[..., :WIDTH]
            value = value.mean(0) if value.dim() > 1 else value
            y = USES[use](x, torch.tanh(y), value)
        return x + y


class Net(nn.Module):
    def __init__(self, drawn: Drawn):
        super().__init__()
        self.stem = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(Block(drawn) for _ in range(drawn.count))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


@torch.no_grad()
def made(number: int) -> Net:
    """Return the net of this number."""
    drawn = Drawn(number)
    torch.manual_seed(number)
    net = Net(drawn)
    for index, block in enumerate(net.blocks):
        if drawn.others == "same":
            block.load_state_dict(net.blocks[0].state_dict())
        elif drawn.others == "grid":
            for tensor in block.parameters():
                tensor.copy_(torch.randint(-2, 3, tensor.shape) / 2)
        owner = {"vector": block.vector, "scalar": block.scalar, "bias": block.layer.bias, "weight": block.layer.weight,
                 "small": block.small, "table": block.table, "norm": block.norm.weight}  # fmt: skip
        tensor = owner[drawn.tensor].data.view(-1)
        is_late = drawn.late <= index <= drawn.until
        _move(tensor, drawn.moved, drawn.after if is_late else drawn.before, is_late)
    return net.eval()


def _move(tensor: torch.Tensor, how: str, value: float, is_late: bool) -> None:
    """Put into the tensor what is the same in early blocks, and other in late ones."""
    if how == "element":
        tensor[:: max(1, len(tensor) // 4)] = value
    elif how == "half":
        tensor[: -(-len(tensor) // 2)] = value
    elif how == "all":
        tensor.fill_(value)
    elif is_late:
        tensor.fill_(float(how == "one"))
