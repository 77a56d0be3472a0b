"""Published nets as op lists, written from their architecture: no weights, no conversion, milliseconds each.

    sites("transformer form=split_einsum batch=2 tokens=256 width=768 layers=6 heads=12 mask=input")

`form` is the project's: `original` works on (B, S, C) with all heads in one product, `split_einsum` on (B, C, 1, S) head by
head. Both are compared with real conversions of the same sizes (slow test): FLOP, weights, spilled bytes, places of ops.
"""

from collections.abc import Callable
from functools import cache

from ane_sweep.placement.sites import Site, Tensor
from tests.proof.placement import mobile
from tests.proof.placement.writing import Net, Shape, shape_of


@cache
def sites(spec: str) -> list[Site]:
    """The ops of a net: its name, then key=value. Raises KeyError or TypeError for what nothing here is called."""
    name, *words = spec.split()
    options = dict(word.split("=", 1) for word in words)
    net = Net(int(options.pop("bits", 16)))
    _NETS[name](
        net, **{key: (int(value) if value.isdigit() and key != "part" else value) for key, value in options.items()}
    )
    return net.made


def transformer(
    net: Net, form: str = "original", batch: int = 1, tokens: int = 128, width: int = 768, layers: int = 6, heads: int = 12,
    kv_heads: int = 0, ffn: int = 0, gated: int = 0, cached: int = 0, mask: str = "none", vocab: int = 0, head: str = "none",
    pieces: int = 1, encoder: int = 0, first: str = "tokens", io: str = "fp16",
) -> None:  # fmt: skip
    """Encoder or decoder; `cached` keys and values come in and go out; `encoder` layers before, attended to by each later one."""
    block = _Block(
        net, form, batch, tokens, width, heads, kv_heads or heads, ffn or 4 * width, bool(gated), cached, mask, io
    )
    x = block.start(vocab, first)
    bias = block.bias()
    other = None
    for _ in range(encoder):
        x = block.layer(x, bias, None)
    if encoder:
        other, x = x, block.start(0, "values")
    for _ in range(layers):
        x = block.layer(x, bias, other)
    x = net.norm(x)
    if head != "none":
        block.head(x, vocab, head, pieces)


class _Block:
    def __init__(
        self, net: Net, form: str, batch: int, tokens: int, width: int, heads: int, kv: int, ffn: int, gated: bool, cached: int,
        mask: str, io: str,
    ):  # fmt: skip
        self.net, self.batch, self.tokens, self.width, self.heads, self.kv = net, batch, tokens, width, heads, kv
        self.ffn, self.gated, self.cached, self.mask, self.io = ffn, gated, cached, mask, io
        self.split, self.size, self.slice = form != "original", width // heads, 512 if form == "split_einsum_v2" else 0
        self.shape: Shape = (batch, width, 1, tokens) if self.split else (batch, tokens, width)

    def start(self, vocab: int, first: str) -> Tensor:
        if first != "tokens" or not vocab:
            return Tensor("fp16", self.shape)
        indices, rows = Tensor("int32", (self.batch, self.tokens)), (self.batch, self.tokens, self.width)
        x = self.net.op("gather", rows, x=self.net.weight(vocab, self.width), indices=indices)
        if not self.split:
            return x
        return self.net.unary(
            "expand_dims", self.net.unary("transpose", x, (self.batch, self.width, self.tokens)), self.shape
        )

    def bias(self) -> Tensor | None:
        if self.mask == "none":
            return None
        keys = self.tokens + self.cached
        if self.mask == "input":
            given = Tensor("fp16", (self.batch, keys, 1, 1) if self.split else (self.batch, 1, 1, keys))
            return self.net.unary("mul", self.net.unary("sub", given))
        return self.net.weight(1, keys, 1, self.tokens) if self.split else self.net.weight(1, 1, self.tokens, keys)

    def project(self, x: Tensor, wide: int) -> Tensor:
        return self.net.conv(x, wide) if self.split else self.net.linear(x, wide)

    def layer(self, x: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
        net = self.net
        x = net.add(x, self.attend(net.norm(x), bias, None))
        if other is not None:
            x = net.add(x, self.attend(net.norm(x), None, other))
        y = net.norm(x)
        wide = net.unary("gelu", self.project(y, self.ffn))
        if self.gated:
            wide = net.op("mul", shape_of(wide), x=wide, y=self.project(y, self.ffn))
        return net.add(x, self.project(wide, self.width))

    def attend(self, x: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
        kv_width = self.width * self.kv // self.heads
        query, key, value = (
            self.project(x, self.width),
            self.project(other or x, kv_width),
            self.project(other or x, kv_width),
        )
        if self.cached and other is None:
            key, value = self._grown(key, kv_width), self._grown(value, kv_width)
        together = self._by_head if self.split else self._at_once
        return self.project(together(query, key, value, bias), self.width)

    def _grown(self, x: Tensor, width: int) -> Tensor:
        """New columns behind those of before, which come in and go out."""
        keys = self.tokens + self.cached
        before = (self.batch, width, 1, self.cached) if self.split else (self.batch, self.cached, width)
        after = (self.batch, width, 1, keys) if self.split else (self.batch, keys, width)
        grown = self.net.op("concat", after, values=[Tensor(self.io, before), x])
        self.net.op("slice_by_index", before, self.io, x=grown)
        return grown

    def _at_once(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        net, batch, heads, size = self.net, self.batch, self.heads, self.size

        def by_head(x: Tensor) -> Tensor:
            length = shape_of(x)[1]
            apart = net.unary("reshape", x, (batch, length, heads, size))
            return net.unary("transpose", apart, (batch, heads, length, size))

        keys = shape_of(key)[1]
        q, k, v = by_head(net.unary("mul", query)), by_head(key), by_head(value)
        scores = net.product(q, k, (batch, heads, self.tokens, keys))
        weights = net.unary("softmax", net.add(scores, bias) if bias is not None else scores)
        mixed = net.unary("transpose", net.product(weights, v, shape_of(q)), (batch, self.tokens, heads, size))
        return net.unary("reshape", mixed, self.shape)

    def _by_head(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        net, batch, keys, size, mixed = self.net, self.batch, shape_of(key)[-1], self.size, []
        turned = net.unary("transpose", net.unary("mul", key), (batch, 1, keys, self.width))
        tokens = min(self.tokens, self.slice or self.tokens)
        for _ in range(self.heads * -(-self.tokens // tokens)):
            q = net.unary("slice_by_index", query, (batch, 1, size, tokens))
            k = net.unary("slice_by_index", turned, (batch, 1, keys, size))
            v = net.unary("slice_by_index", value, (batch, 1, size, keys))
            scores = net.product(k, q, (batch, 1, keys, tokens))
            weights = net.unary("softmax", net.add(scores, bias) if bias is not None else scores)
            mixed.append(net.product(v, weights, (batch, 1, size, tokens)))
        return net.op("concat", self.shape, values=mixed)

    def head(self, x: Tensor, vocab: int, kind: str, pieces: int) -> None:
        net = self.net
        if kind == "last":
            x = net.unary(
                "slice_by_index", x, (self.batch, self.width, 1, 1) if self.split else (self.batch, 1, self.width)
            )
        made = [self.project(x, vocab // pieces) for _ in range(pieces)]
        if pieces > 1:
            net.op("concat", (*shape_of(x)[:-1], vocab), values=made)


def mlp(net: Net, tokens: int, width: int, hidden: int, layers: int) -> None:
    """linear, gelu, linear, again and again."""
    x = Tensor("fp16", (1, tokens, width))
    for _ in range(layers):
        x = net.linear(net.unary("gelu", net.linear(x, hidden)), width)


def projection(net: Net, width: int, wide: int, tokens: int = 1, pieces: int = 16) -> None:
    """A vocabulary's projection as convolutions side by side."""
    x = Tensor("fp16", (1, width, 1, tokens))
    net.op("concat", (1, wide, 1, tokens), values=[net.conv(x, wide // pieces) for _ in range(pieces)])


def whisper(net: Net, width: int, layers: int, heads: int, form: str = "original", batch: int = 1) -> None:
    """The encoder, 3,000 frames of 80 bands."""
    x = net.unary("gelu", net.conv(Tensor("fp16", (batch, 80, 1, 3000)), width, 3, across=True))
    net.unary("gelu", net.conv(x, width, 3, 2, across=True))
    transformer(net, form, batch, 1500, width, layers, heads, first="values")


def resnet50(net: Net, batch: int = 1) -> None:
    x = net.unary("relu", net.conv(Tensor("fp16", (batch, 3, 224, 224)), 64, 7, 2))
    x = net.unary("max_pool", x, (batch, 64, 56, 56))
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for place in range(count):
            step = stride if place == 0 else 1
            y = net.unary("relu", net.conv(x, width))
            y = net.unary("relu", net.conv(y, width, 3, step))
            short = net.conv(x, 4 * width, 1, step) if place == 0 else x
            x = net.unary("relu", net.add(net.conv(y, 4 * width), short))
    net.linear(net.unary("reduce_mean", x, (batch, 2048)), 1000)


def mobilenet(net: Net, version: int, batch: int = 1) -> None:
    """V1, V2, or V3-small (3)."""
    x = net.conv(Tensor("fp16", (batch, 3, 224, 224)), 32 if version < 3 else 16, 3, 2)
    for kernel, expanded, out, gate, stride in _MOBILE[version]:
        before, inside = x, (shape_of(x)[1] * expanded // 16 if version < 3 else expanded)
        x = x if inside == shape_of(x)[1] else net.unary("relu6", net.conv(x, inside))
        x = net.unary("relu6", net.conv(x, inside, kernel, stride, groups=inside))
        if gate:
            squeezed = net.conv(net.unary("reduce_mean", x, (batch, inside, 1, 1)), max(8, inside // 4))
            x = net.op("mul", shape_of(x), x=x, y=net.unary("sigmoid", net.conv(net.unary("relu", squeezed), inside)))
        x = net.conv(x, out)
        x = net.add(x, before) if shape_of(x) == shape_of(before) else x
    last = {1: (), 2: (1280,), 3: (576,)}[version]
    for wide in last:
        x = net.unary("relu6", net.conv(x, wide))
    x = net.unary("reduce_mean", x, (batch, shape_of(x)[1]))
    net.linear(net.unary("relu6", net.linear(x, 1024)) if version == 3 else x, 1000)


def _v1() -> list[tuple[int, int, int, bool, int]]:
    widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    return [(3, 16, out, False, stride) for out, stride in widths]


def _v2() -> list[tuple[int, int, int, bool, int]]:
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    return [(3, 16 * t, c, False, s if place == 0 else 1) for t, c, n, s in rows for place in range(n)]


# kernel, expansion (in sixteenths; V3: channels), channels out, squeeze and excite, stride
_MOBILE = {
    1: _v1(),
    2: _v2(),
    3: [
        (3, 16, 16, True, 2), (3, 72, 24, False, 2), (3, 88, 24, False, 1), (5, 96, 40, True, 2), (5, 240, 40, True, 1),
        (5, 240, 40, True, 1), (5, 120, 48, True, 1), (5, 144, 48, True, 1), (5, 288, 96, True, 2), (5, 576, 96, True, 1),
        (5, 576, 96, True, 1),
    ],
}  # fmt: skip


def unet(
    net: Net, form: str = "original", batch: int = 2, part: str = "whole", head_size: int = 0, context: int = 768
) -> None:
    """Stable Diffusion 1.x and 2.1 base: 64 x 64, four levels. `part`: 1 down and middle, 2 up. `head_size` 0: 8 heads."""
    made = _UNet(net, form, batch, head_size, context)
    x = net.conv(Tensor("fp16", (batch, 4, 64, 64)), 320, 3)
    skips = [x]
    for level, width in enumerate((320, 640, 1280, 1280)):
        for _ in range(2):
            x = made.block(x, width, level < 3)
            skips.append(x)
        if level < 3:
            x = net.conv(x, width, 3, 2)
            skips.append(x)
    x = made.residual(made.block(x, 1280, True), 1280)
    cut = len(net.made)
    for level, width in reversed(list(enumerate((320, 640, 1280, 1280)))):
        for _ in range(3):
            skip = skips.pop()
            shape = (batch, shape_of(x)[1] + shape_of(skip)[1], *shape_of(x)[2:])
            x = made.block(net.op("concat", shape, values=[x, skip]), width, level < 3)
        if level:
            double = (batch, width, 2 * shape_of(x)[2], 2 * shape_of(x)[3])
            x = net.conv(net.unary("upsample_nearest_neighbor", x, double), width, 3)
    net.conv(net.unary("silu", net.norm(x)), 4, 3)
    if part != "whole":
        net.made = net.made[:cut] if part == "1" else net.made[cut:]


class _UNet:
    def __init__(self, net: Net, form: str, batch: int, head_size: int, context: int):
        self.net, self.form, self.batch, self.head_size, self.context = net, form, batch, head_size, context

    def residual(self, x: Tensor, width: int) -> Tensor:
        net, y = self.net, x
        for _ in range(2):
            y = net.conv(net.unary("silu", net.norm(y)), width, 3)
        return net.add(y, x if shape_of(x)[1] == width else net.conv(x, width))

    def block(self, x: Tensor, width: int, attends: bool) -> Tensor:
        x = self.residual(x, width)
        if not attends:
            return x
        net, shape = self.net, shape_of(x)
        tokens, heads = shape[2] * shape[3], width // self.head_size if self.head_size else 8
        made = _Block(net, self.form, self.batch, tokens, width, heads, heads, 4 * width, True, 0, "none", "fp16")
        y = net.unary("reshape", net.conv(net.norm(x), width), made.shape)
        words = (self.batch, self.context, 1, 77) if made.split else (self.batch, 77, self.context)
        y = made.layer(y, None, Tensor("fp16", words))
        return net.add(net.conv(net.unary("reshape", y, shape), width), x)


_NETS: dict[str, Callable[..., None]] = {
    "transformer": transformer, "mlp": mlp, "projection": projection, "whisper": whisper, "resnet50": resnet50,
    "mobilenet": mobilenet, "unet": unet, "mobileone": mobile.mobileone, "repvit": mobile.repvit, "fastvit": mobile.fastvit,
    "efficientformer": mobile.efficientformer, "swiftformer": mobile.swiftformer,
}  # fmt: skip
