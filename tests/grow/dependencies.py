"""Nets of repeated blocks, drawn by number, in which what a block holds decides further constants: an element, a slice, a
maximum, a comparison. In most of them it is the same in all blocks but a later one, so that early blocks do not show it. Some
hold a trap besides: what two blocks share, what Python reads as it runs, or a name that is there twice."""

import ctypes
import random

import numpy as np
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
    "none": lambda v: v, "max": lambda v: v.max(), "min": lambda v: v.min(), "sum": lambda v: v.sum(), "mean": lambda v: v.mean(),
    "norm": lambda v: v.norm(), "largest": lambda v: v.abs().max(), "any": lambda v: (v > 1.2).any().float(),
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
    "huge": lambda v: v * 1e5, "huge for a while": lambda v: v * 1e5 * 1e-5, "inverse": lambda v: torch.sign(1 / v), "erf": torch.erf,
    "bounded": lambda v: torch.minimum(v * 1e5, torch.tensor(3.0)), "softmax": lambda v: v.reshape(-1).softmax(0),
}  # fmt: skip
USES = {
    "times": lambda x, y, v: x + y * v, "plus": lambda x, y, v: x + y + v, "over": lambda x, y, v: x + y / (v + 3.0),
    "chosen": lambda x, y, v: torch.where((v > 1.0).expand(WIDTH), x, y), "power": lambda x, y, v: x + y.abs().clamp(0.1) ** v,
    "matrix": lambda x, y, v: x + y @ (v * torch.ones(WIDTH, WIDTH)), "least": lambda x, y, v: x + torch.minimum(y, v),
}  # fmt: skip


def _guarded(read):
    """Return a reading of numbers that gives False where there are none."""

    def flag(vector) -> bool:
        try:
            return bool(read(vector))
        except Exception:
            return False

    return flag


READ_BY_PYTHON = {
    "asked": _guarded(lambda v: v.max() > 1.2), "item": _guarded(lambda v: v.amax().item() > 1.2),
    "list": _guarded(lambda v: max(v.tolist()) > 1.2), "numpy": _guarded(lambda v: np.abs(v.detach().numpy()).max() > 1.2),
    "memory": _guarded(lambda v: v.data_ptr() and max((ctypes.c_float * len(v)).from_address(v.data_ptr())) > 1.2),
    "equal": _guarded(lambda v: torch.equal(v, v.clamp(max=1.2))), "traced": lambda v: torch.jit.is_tracing(),
}  # fmt: skip
SHARED = ("state", "pair", "pair in fp16", "pair rounded", "matrix", "matrix but for signs", "memory")
TRAPS = ("none",) * 12 + (*SHARED, *READ_BY_PYTHON, "name", "neighbour", "neighbour", "signed zero")


class Drawn:
    """What one number stands for."""

    def __init__(self, number: int):
        draw = random.Random(number)
        self.count = draw.choice((9, 9, 10, 11))  # so deep that it is grown unasked
        self.late = draw.randrange(2, self.count - 1)
        self.until = draw.choice((self.late, self.count))  # the last block that is as the late one
        self.layer = draw.choice(("linear", "linear", "conv", "conv with norm", "weight norm", "lstm"))
        self.ways = [
            tuple(draw.choice(list(table)) for table in (PICKS, REDUCTIONS, READINGS, USES))
            for _ in range(draw.choice((1, 1, 2)))
        ]
        self.moved = draw.choice(("element", "element", "all", "half", "zero", "one"))
        self.tensor = draw.choice(("vector", "vector", "scalar", "bias", "weight", "small", "table", "norm"))
        self.others = draw.choice(("drawn", "drawn", "same", "grid"))
        self.before, self.after = draw.sample((0.0, 0.3, 0.5, 1.0, 1.1, 1.5, 2.0, -0.7, 1000.0, 1e-7, 65510.0, 7e4), 2)
        self.trap = draw.choice(TRAPS)
        self.other = draw.choice([one for one in range(self.count) if one != self.late])
        if self.trap != "none":  # which alone shall be in the way
            self.ways = [("vector", "none", "inverse" if self.trap == "signed zero" else "as it is", "times")]
        if self.trap == "signed zero":
            self.before, self.after, self.moved = 0.0, -0.0, "all"
        self.seed = number

    def __str__(self):
        return f"net {self.seed}: {vars(self)}"


class Lstm(nn.Module):
    """Only what it says at each step."""

    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.weight, self.bias = self.inner.weight_ih_l0, self.inner.bias_ih_l0

    def forward(self, x):
        return self.inner(x)[0]


LAYERS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH), "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "lstm": Lstm, "conv": lambda: nn.Conv1d(WIDTH, WIDTH, 1), "conv with norm": lambda: nn.Conv1d(WIDTH, WIDTH, 1),
}  # fmt: skip


class Block(nn.Module):
    def __init__(self, drawn: Drawn, number: int):
        super().__init__()
        conv = drawn.layer.startswith("conv")
        self.layer = LAYERS[drawn.layer]()
        self.norm = nn.BatchNorm1d(WIDTH) if drawn.layer == "conv with norm" else nn.LayerNorm(WIDTH)
        self.vector, self.table = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(3, WIDTH))
        self.small, self.scalar = nn.Parameter(torch.randn(4)), nn.Parameter(torch.tensor(0.5))
        self.pair, self.matrix = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.ways, self.conv, self.trap, self.is_late = drawn.ways, conv, drawn.trap, number == drawn.late

    def forward(self, x, first, other):
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
        return x + self.trapped(y, first, other)

    def trapped(self, y, first, other):
        """Return y after what the net's trap does with it, what all blocks see, and the next block."""
        if self.trap in READ_BY_PYTHON and (self.trap != "traced" or self.is_late):
            return torch.relu(y) if READ_BY_PYTHON[self.trap](self.vector) else y
        if self.trap == "neighbour":
            return y * (self.vector * other.vector > 1.2).float() + y * (self.scalar == other.scalar).float()
        if self.trap in SHARED:
            pair = torch.round(self.pair) if self.trap == "pair rounded" else self.pair
            return y + first * pair + first @ self.matrix.abs() + first @ (self.matrix.abs() * self.vector)
        return y


class Net(nn.Module):
    def __init__(self, drawn: Drawn):
        super().__init__()
        self.stem = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(Block(drawn, number) for number in range(drawn.count))
        self.twice = f"blocks_{drawn.late}_vector" if drawn.trap == "name" else "own"
        self.register_parameter(self.twice, nn.Parameter(torch.randn(WIDTH)))

    def forward(self, x):
        first = x = self.stem(x) * getattr(self, self.twice)
        for block, other in zip(self.blocks, [*self.blocks[1:], self.blocks[0]]):
            x = block(x, first, other)
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
    _share(drawn.trap, net.blocks[drawn.other], net.blocks[drawn.late])
    return net.eval()


def _share(trap: str, one: Block, late: Block) -> None:
    """Make equal in two blocks what the trap is about."""
    if trap == "state":
        late.load_state_dict(one.state_dict())
    elif trap == "pair in fp16":
        late.pair.copy_(one.pair * (1 + 1e-5))
    elif trap == "pair rounded":
        late.pair.copy_(one.pair + 0.4 * (one.pair.round() - one.pair))
    elif trap == "pair":
        late.pair.copy_(one.pair)
    elif trap == "matrix":
        late.matrix.copy_(one.matrix)
    elif trap == "matrix but for signs":
        late.matrix.copy_(-one.matrix)
    elif trap == "memory":
        late.pair.data = one.pair.data


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
