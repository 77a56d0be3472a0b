"""Nets as people write them, none of a family that is built here: 12 blocks each. GROWN repeat; LIES look as if they did."""

import torch
from torch import nn

DEPTH, WIDTH = 12, 16
RAN = [0]


class Block(nn.Module):
    def __init__(self, scale: float = 1.0, act: type[nn.Module] = nn.GELU):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.act, self.scale = act(), scale

    def forward(self, x):
        return x + self.scale * self.down(self.act(self.up(self.norm(x))))


class Mlp(nn.Module):
    """A stack of residual blocks."""

    def __init__(self, make=lambda i: Block(), depth: int = DEPTH):
        super().__init__()
        self.stem, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 3)
        self.blocks = nn.ModuleList(make(i) for i in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ConvBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Convs(nn.Sequential):
    def __init__(self):
        blocks = [ConvBlock() for _ in range(DEPTH)]
        super().__init__(nn.Conv2d(3, WIDTH, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 3))


class Turns(nn.Sequential):
    """No block at all: layers and activations in turns."""

    def __init__(self):
        super().__init__(*(layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


class Encoder(nn.Module):
    """torch's own, all of whose layers begin as copies of one."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)

    def forward(self, x):
        torch.backends.mha.set_fastpath_enabled(False)  # an op that coremltools does not know
        return self.layers(x)


class Shifted(Block):
    """A table of its own, which no training changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.randn(WIDTH))

    def forward(self, x):
        return super().forward(x) + self.shift


class Windowed(Block):
    """Looks at near neighbours, or at all."""

    def __init__(self, i: int):
        super().__init__()
        self.near = i % 2 == 0

    def forward(self, x):
        return super().forward(x.roll(1, 1) if self.near else x)


class Shares(Mlp):
    """One projection in all blocks."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.up = self.blocks[0].up


class FirstIsOther(Mlp):
    def __init__(self):
        super().__init__(lambda i: Windowed(0) if i == 0 else Block())


class Skips(Mlp):
    """Each block sees the beginning, too."""

    def forward(self, x):
        first = x = self.stem(x)
        for block in self.blocks:
            x = block(x) + first
        return self.head(x)


class Rates(Mlp):
    """Dropout that grows with depth, which is nothing in what is converted."""

    def __init__(self):
        super().__init__(lambda i: nn.Sequential(Block(), nn.Dropout(i / 100)))


class Twice(Mlp):
    """Two times through all blocks."""

    def forward(self, x):
        x = self.stem(x)
        for block in [*self.blocks, *self.blocks]:
            x = block(x)
        return self.head(x)


class ByParameter(Mlp):
    """A layer scale that is a parameter of many numbers."""

    def __init__(self):
        super().__init__()
        for i, block in enumerate(self.blocks):
            block.scale = nn.Parameter(torch.full((WIDTH,), 1.0) + torch.arange(WIDTH) / (i + 1))


GROWN = {
    "mlp": Mlp, "convs": Convs, "turns": Turns, "encoder": Encoder, "shifted": lambda: Mlp(lambda i: Shifted()),
    "windowed": lambda: Mlp(Windowed, 20), "shares": Shares, "first_is_other": FirstIsOther, "skips": Skips, "rates": Rates,
    "twice": Twice, "by_parameter": ByParameter,
}  # fmt: skip


class Constant(Block):
    def __init__(self, i: int):
        super().__init__()
        self.factor = torch.tensor(1 / (i + 1))

    def forward(self, x):
        return super().forward(x) * self.factor


class OneIsOther(Mlp):
    def __init__(self, act: type[nn.Module] = nn.ReLU):
        super().__init__(lambda i: Block(act=act if i == 7 else nn.GELU))


class ByNumber(Mlp):
    """Fewer blocks than it says would not do."""

    def forward(self, x):
        x = self.stem(x)
        for i in range(DEPTH):
            x = self.blocks[i](x)
        return self.head(x)


class ByCount(Mlp):
    def forward(self, x):
        return super().forward(x) / len(self.blocks)


class WhereThereAreMany(Mlp):
    def forward(self, x):
        made = super().forward(x)
        return torch.relu(made) if len(self.blocks) > 8 else made


class TableByCount(Mlp):
    def forward(self, x):
        return super().forward(x) + torch.full((1, 3), float(len(self.blocks))).expand(6, 3)


class AllOfThem(Mlp):
    """The mean of what all blocks give."""

    def forward(self, x):
        x, seen = self.stem(x), []
        for block in self.blocks:
            x = block(x)
            seen.append(x)
        return self.head(torch.stack(seen).mean(0))


class Counts(Mlp):
    """Remembers, outside itself, how often it ran."""

    def forward(self, x):
        RAN[0] += 1
        return super().forward(x) * RAN[0]


class Writes(Mlp):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        return super().forward(x) * self.seen


class Asks(Mlp):
    def forward(self, x):
        made = super().forward(x)
        return made if made.sum() > 0 else -made


class Picks(Block):
    """Which channels it takes: whole numbers that it holds."""

    def __init__(self, i: int):
        super().__init__()
        self.register_buffer("which", torch.roll(torch.arange(WIDTH), i * i % 5))

    def forward(self, x):
        return super().forward(x)[..., self.which]


class TwoAreEqual(Mlp):
    def __init__(self):
        super().__init__()
        self.blocks[7].load_state_dict(self.blocks[4].state_dict())


class OneIsZero(Mlp):
    """A bias that a conversion leaves out."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.blocks[6].down.bias)
        nn.init.zeros_(self.blocks[6].down.weight)


class NearOne(Mlp):
    """A number in each block, and another in one of them."""

    def __init__(self):
        super().__init__()
        for i, block in enumerate(self.blocks):
            block.scale = nn.Parameter(torch.tensor(2.0 if i == 7 else 0.5))


class NormIsOther(nn.Sequential):
    """Of a convolution and its norm, folded: few numbers lie in the program itself, and more in the weight file."""

    def __init__(self):
        blocks = [ConvBlock() for _ in range(DEPTH)]
        for i, block in enumerate(blocks):
            block.conv, block.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
            nn.init.constant_(block.conv.bias, 0.1)
            nn.init.constant_(block.norm.weight, 1.0 if i < 7 else 0.5)
        super().__init__(nn.Conv2d(3, 8, 3), *blocks)


class Reads(Block):
    """A table that is used as it is, and a number made of it that a late block has otherwise."""

    def __init__(self, i: int, number, late: float):
        super().__init__()
        self.table, self.number = nn.Parameter(torch.rand(WIDTH) - 0.5), number
        with torch.no_grad():
            self.table[3] = 0.75 if i < 7 else late

    def forward(self, x):
        return super().forward(x) * self.table * self.number(self.table)


READ = {
    "element": (lambda w: w[3], 0.6), "part": (lambda w: w[2:4].sum(), 0.6), "maximum": (lambda w: w.max(), 0.9),
    "comparison": (lambda w: (w[3] > 0.8).float(), 0.9), "mask": (lambda w: 1.0 + (w > 0.8).float(), 0.9),
    "whole_number": (lambda w: 1 + w[3].long().float(), 1.2), "limit": (lambda w: w[3].clamp(min=0.8), 0.9),
    "sign": (lambda w: torch.sign(w[3]), -0.75), "too_small": (lambda w: w[3] * 1e-8, 12.0),
}  # fmt: skip
LIES = {
    "norm_is_other": NormIsOther,
    **{name: lambda number=number, late=late: Mlp(lambda i: Reads(i, number, late)) for name, (number, late) in READ.items()},
    "scale": lambda: Mlp(lambda i: Block(1 / (i + 1))), "constant": lambda: Mlp(Constant), "one_is_other": OneIsOther,
    "last_but_one": lambda: Mlp(lambda i: Block(act=nn.ReLU if i == 10 else nn.GELU)), "by_number": ByNumber,
    "by_count": ByCount, "where_there_are_many": WhereThereAreMany, "table_by_count": TableByCount,
    "all_of_them": AllOfThem, "counts": Counts, "writes": Writes, "asks": Asks, "picks": lambda: Mlp(Picks),
    "two_are_equal": TwoAreEqual, "one_is_zero": OneIsZero, "near_one": NearOne,
    "pairs": lambda: Mlp(lambda i: Block(1.0 + (i // 2) % 2 / 2 + (i == 9))),
}  # fmt: skip
SHAPES = {"convs": [1, 3, 12, 12], "norm_is_other": [1, 3, 12, 12], "turns": [1, WIDTH], "encoder": [1, 6, WIDTH]}


def made(name: str) -> nn.Module:
    """One of them, by seed the same each time."""
    torch.manual_seed(0)
    RAN[0] = 0
    return {**GROWN, **LIES}[name]()


def shape(name: str) -> list[int]:
    return SHAPES.get(name, [1, 6, 8])
