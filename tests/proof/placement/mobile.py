"""Published nets of phones as op lists, in the form in which they run: branches and norms folded into convolutions.

Widths, depths and strides are those of each paper; products and weights are compared with what the paper says (test).
"""

from collections.abc import Sequence

from ane_sweep.placement.sites import Tensor
from tests.proof.placement.writing import Net, Shape, shape_of


def picture(size: int) -> Tensor:
    return Tensor("fp16", (1, 3, size, size))


def gate(net: Net, x: Tensor, inner: int) -> Tensor:
    """Squeeze and excite."""
    shape = shape_of(x)
    squeezed = net.unary("relu", net.conv(net.unary("reduce_mean", x, (*shape[:2], 1, 1)), inner))
    return net.op("mul", shape, x=x, y=net.unary("sigmoid", net.conv(squeezed, shape[1])))


def widened(net: Net, x: Tensor, inner: int, out: int = 0) -> Tensor:
    """Two 1x1 convolutions with GELU between them."""
    return net.conv(net.unary("gelu", net.conv(x, inner)), out or shape_of(x)[1])


def across(net: Net, x: Tensor, kernel: int, stride: int = 1, wide: int = 0) -> Tensor:
    """A convolution by channel."""
    return net.conv(x, wide or shape_of(x)[1], kernel, stride, groups=shape_of(x)[1])


def classify(net: Net, x: Tensor) -> None:
    shape = shape_of(x)
    net.linear(net.unary("reduce_mean", x, shape[:2]), 1000)


def mobileone(net: Net, size: str) -> None:
    """arXiv:2206.04040, 224 x 224."""
    widths, gates = _MOBILEONE[size]
    x = net.unary("relu", net.conv(picture(224), min(64, widths[0]), 3, 2))
    for wide, count, gated in zip(widths, (2, 8, 10, 1), gates):
        for place in range(count):
            for y_kernel in (3, 1):
                x = across(net, x, 3, 2 if place == 0 else 1) if y_kernel == 3 else net.conv(x, wide)
                if place >= count - gated:
                    x = gate(net, x, shape_of(x)[1] // 16)
                x = net.unary("relu", x)
    classify(net, x)


_MOBILEONE = {
    "s0": ((48, 128, 256, 1024), (0, 0, 0, 0)), "s1": ((96, 192, 512, 1280), (0, 0, 0, 0)),
    "s2": ((96, 256, 640, 2048), (0, 0, 0, 0)), "s3": ((128, 320, 768, 2048), (0, 0, 0, 0)),
    "s4": ((192, 448, 896, 2048), (0, 0, 5, 1)),
}  # fmt: skip


def repvit(net: Net, size: str) -> None:
    """arXiv:2307.09283, 224 x 224; every other block has a gate."""
    width, counts = _REPVIT[size]
    x = net.conv(net.unary("gelu", net.conv(picture(224), width // 2, 3, 2)), width, 3, 2)
    for level, count in enumerate(counts):
        wide = width << level
        if level:
            x = net.conv(across(net, x, 3, 2), wide)
            x = net.add(x, widened(net, x, 2 * wide))
        for place in range(count):
            x = across(net, x, 3)
            x = gate(net, x, wide // 4) if place % 2 == 0 else x
            x = net.add(x, widened(net, x, 2 * wide))
    classify(net, x)


_REPVIT = {
    "m0.9": (48, (3, 3, 15, 2)), "m1.0": (56, (3, 3, 15, 2)), "m1.1": (64, (3, 3, 13, 2)), "m1.5": (64, (5, 5, 25, 4)),
    "m2.3": (80, (7, 7, 35, 2)),
}  # fmt: skip


def fastvit(net: Net, size: str) -> None:
    """arXiv:2303.14189, 256 x 256; the SA and MA sizes attend in the last of four levels."""
    width, counts, ratio, attends = _FASTVIT[size]
    x = net.unary("gelu", net.conv(picture(256), width, 3, 2))
    x = net.unary("gelu", across(net, x, 3, 2))
    x = net.unary("gelu", net.conv(x, width))
    for level, count in enumerate(counts):
        wide = width << level
        if level:
            x = net.unary("gelu", across(net, x, 7, 2, wide))
            x = net.unary("gelu", net.conv(x, wide))
        mixes = attends and level == 3
        x = across(net, x, 7) if mixes else x
        for _ in range(count):
            x = net.add(x, _attended(net, x)) if mixes else across(net, x, 3)
            x = net.add(x, net.unary("mul", widened(net, across(net, x, 7), ratio * wide)))
    x = net.unary("gelu", gate(net, across(net, x, 3, 1, 16 * width), width))
    classify(net, x)


_FASTVIT = {
    "t8": (48, (2, 2, 4, 2), 3, False), "t12": (64, (2, 2, 6, 2), 3, False), "s12": (64, (2, 2, 6, 2), 4, False),
    "sa12": (64, (2, 2, 6, 2), 4, True), "sa24": (64, (4, 4, 12, 4), 4, True), "sa36": (64, (6, 6, 18, 6), 4, True),
    "ma36": (76, (6, 6, 18, 6), 4, True),
}  # fmt: skip


def _attended(net: Net, x: Tensor, heads: int = 0, key_size: int = 32, value_size: int = 0) -> Tensor:
    """Attention of all heads at once over the places of a picture."""
    _, wide, height, width = shape_of(x)
    heads = heads or wide // key_size
    value_size = value_size or wide // heads
    tokens: Shape = (1, height * width, wide)
    rows = net.unary("transpose", net.unary("reshape", net.norm(x), (1, wide, height * width)), tokens)
    count = height * width
    made = net.linear(rows, heads * (2 * key_size + value_size))
    apart = net.unary("transpose", net.unary("reshape", made, (1, count, heads, shape_of(made)[2] // heads)))
    q, k = (net.unary("slice_by_index", apart, (1, heads, count, key_size)) for _ in range(2))
    v = net.unary("slice_by_index", apart, (1, heads, count, value_size))
    weights = net.unary("softmax", net.product(net.unary("mul", q), k, (1, heads, count, count)))
    mixed = net.unary("transpose", net.product(weights, v, shape_of(v)), (1, count, heads, value_size))
    back = net.linear(net.unary("reshape", mixed, (1, count, heads * value_size)), wide)
    return net.unary("reshape", net.unary("transpose", back, (1, wide, count)), shape_of(x))


def efficientformer(net: Net, size: str) -> None:
    """arXiv:2206.01191, 224 x 224; pooling as a mixer, and attention in the last blocks."""
    widths, counts, attends = _EFFICIENTFORMER[size]
    x = net.unary("relu", net.conv(picture(224), widths[0] // 2, 3, 2))
    x = net.unary("relu", net.conv(x, widths[0], 3, 2))
    for level, (wide, count) in enumerate(zip(widths, counts)):
        x = net.conv(x, wide, 3, 2) if level else x
        for place in range(count):
            mixes = level == 3 and place >= count - attends
            mixed = (
                _attended(net, x, 8, 32, 128) if mixes else net.op("sub", shape_of(x), x=net.unary("avg_pool", x), y=x)
            )
            x = net.add(x, net.unary("mul", mixed))
            x = net.add(x, net.unary("mul", widened(net, x, 4 * wide)))
    classify(net, net.norm(x))


_EFFICIENTFORMER: dict[str, tuple[Sequence[int], Sequence[int], int]] = {
    "l1": ((48, 96, 224, 448), (3, 2, 6, 4), 1), "l3": ((64, 128, 320, 512), (4, 4, 12, 6), 4),
    "l7": ((96, 192, 384, 768), (6, 6, 18, 8), 8),
}  # fmt: skip


def swiftformer(net: Net, size: str) -> None:
    """arXiv:2303.15446, 224 x 224; each level ends with a block of additive attention."""
    widths, counts = _SWIFTFORMER[size]
    x = net.unary("relu", net.conv(picture(224), widths[0] // 2, 3, 2))
    x = net.unary("relu", net.conv(x, widths[0], 3, 2))
    for level, (wide, count) in enumerate(zip(widths, counts)):
        x = net.conv(x, wide, 3, 2) if level else x
        for _ in range(count):
            x = net.add(x, net.unary("mul", widened(net, across(net, x, 3), 4 * wide)))
        x = net.add(x, net.unary("mul", widened(net, across(net, x, 3), wide)))
        x = net.add(x, net.unary("mul", _added(net, x)))
        x = net.add(x, net.unary("mul", widened(net, x, 4 * wide)))
    classify(net, x)


_SWIFTFORMER = {
    "xs": ((48, 56, 112, 220), (2, 2, 5, 3)), "s": ((48, 64, 168, 224), (2, 2, 8, 5)),
    "l1": ((48, 96, 192, 384), (3, 2, 9, 4)), "l3": ((64, 128, 320, 512), (3, 3, 11, 5)),
}  # fmt: skip


def _added(net: Net, x: Tensor) -> Tensor:
    """Additive attention: queries are summed up by a weight of each place, keys multiplied by that."""
    _, wide, height, width = shape_of(x)
    rows = net.unary("transpose", net.unary("reshape", x, (1, wide, height * width)), (1, height * width, wide))
    query, key = (net.op("l2_norm", shape_of(rows), x=net.linear(rows, wide)) for _ in range(2))
    scale = net.op("l2_norm", (1, height * width, 1), x=net.unary("mul", net.linear(query, 1)))
    summed = net.unary("reduce_sum", net.op("mul", shape_of(rows), x=query, y=scale), (1, 1, wide))
    mixed = net.linear(net.op("mul", shape_of(rows), x=key, y=summed), wide)
    out = net.linear(net.add(mixed, query), wide)
    return net.unary("reshape", net.unary("transpose", out, (1, wide, height * width)), shape_of(x))
