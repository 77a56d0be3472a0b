"""Op lists written op by op, as a converter would leave them: no weights, no conversion."""

import math

from ane_sweep.placement.sites import Site, Tensor

Shape = tuple[int, ...]


class Net:
    """Ops in file order; `bits` is what a weight takes in the file."""

    def __init__(self, bits: int = 16):
        self.bits = bits
        self.made: list[Site] = []

    def weight(self, *shape: int) -> Tensor:
        packed = math.prod(shape) * self.bits // 8 if self.bits < 16 and math.prod(shape) > 2048 else None
        return Tensor("fp16", shape, const=True, stored_bytes=packed)

    def op(self, kind: str, shape: Shape, dtype: str = "fp16", **inputs: Tensor | list[Tensor]) -> Tensor:
        named = {name: value if isinstance(value, list) else [value] for name, value in inputs.items()}
        out = Tensor(dtype, shape)
        self.made.append(Site(kind, named, [out]))
        return out

    def unary(self, kind: str, x: Tensor, shape: Shape | None = None) -> Tensor:
        return self.op(kind, shape or shape_of(x), x=x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.op("add", shape_of(x), x=x, y=y)

    def linear(self, x: Tensor, wide: int) -> Tensor:
        return self.op(
            "linear", (*shape_of(x)[:-1], wide), x=x, weight=self.weight(wide, shape_of(x)[-1]), bias=self.weight(wide)
        )

    def conv(
        self, x: Tensor, wide: int, kernel: int = 1, stride: int = 1, groups: int = 1, across: bool = False
    ) -> Tensor:
        """`across`: a kernel of one row, as for sound."""
        batch, channels, height, width = shape_of(x)
        shape = (batch, wide, height if across else -(-height // stride), -(-width // stride))
        weight = self.weight(wide, channels // groups, 1 if across else kernel, kernel)
        return self.op("conv", shape, x=x, weight=weight, bias=self.weight(wide), groups=number(groups))

    def norm(self, x: Tensor) -> Tensor:
        return self.op("layer_norm", shape_of(x), x=x, gamma=self.weight(1), beta=self.weight(1))

    def product(self, x: Tensor, y: Tensor, shape: Shape) -> Tensor:
        return self.op("matmul", shape, x=x, y=y)


def shape_of(tensor: Tensor) -> Shape:
    return tuple(size or 1 for size in tensor.shape)


def number(value: int) -> Tensor:
    return Tensor("int32", (), const=True, value=value)
