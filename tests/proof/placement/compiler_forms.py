"""The programs that `records.csv` is about, from the words of a row."""

from collections.abc import Callable

from ane_sweep.placement import shapes
from ane_sweep.placement.sites import Site, Tensor

Words = dict[str, str]


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def _run(*shape: int) -> Tensor:
    return Tensor("fp16", shape)


def _held(*shape: int) -> Tensor:
    return Tensor("fp16", shape, const=True)


def _const(value: object) -> Tensor:
    kind = "bool" if isinstance(value, bool) else "int32"
    return Tensor(kind, (len(value),) if isinstance(value, tuple) else (), const=True, value=value)


class Net:
    """Sites one after the other."""

    def __init__(self) -> None:
        self.sites: list[Site] = []

    def op(self, kind: str, shape: tuple[int | None, ...] | None = None, **inputs: Tensor) -> Tensor:
        site = Site(kind, {name: [tensor] for name, tensor in inputs.items()}, [])
        site.outputs = [Tensor("fp16", shape)] if shape is not None else shapes.infer(site)
        self.sites.append(site)
        return site.outputs[0]

    def product(self, x: Tensor, width: int) -> Tensor:
        held = _held(width, x.shape[-1] or 1)
        return self.op("matmul", (*x.shape[:-1], width), x=x, y=held, transpose_y=_const(True))

    def norm(self, x: Tensor) -> Tensor:
        return self.op("layer_norm", x.shape, x=x, axes=_const((-1,)))

    def mlp(self, x: Tensor, hidden: int, act: str, bias: str = "") -> Tensor:
        y = self._biased(self.product(x, hidden), bias)
        return self._biased(self.product(self.op(act, y.shape, x=y), x.shape[-1] or 1), bias)

    def _biased(self, x: Tensor, bias: str) -> Tensor:
        if not bias:
            return x
        held = _held(1, 1, x.shape[-1] or 1) if bias == "channel" else _held(*(n or 1 for n in x.shape))
        return self.op("add", x.shape, x=x, y=held)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, *, scale: bool) -> Tensor:
        rows = q.shape[-2]
        y = self.op("matmul", (*q.shape[:-1], rows), x=q, y=k, transpose_y=_const(True))
        if scale:
            y = self.op("mul", y.shape, x=y, y=_held())
        y = self.op("softmax", y.shape, x=y, axis=_const(-1))
        return self.op("matmul", v.shape, x=y, y=v)


def _binary(words: Words) -> list[Site]:
    net, x = Net(), _run(*_sizes(words["x"]))
    other = (
        _run(*_sizes(words["y"])) if "y" in words else _held(*_sizes(words["const"])) if "const" in words else _held()
    )
    net.op(words["op"], x.shape, x=x, y=other)
    return net.sites


def _unary(words: Words) -> list[Site]:
    net = Net()
    net.op(words["op"], x=_run(*_sizes(words["x"])))
    return net.sites


def _matmul(words: Words) -> list[Site]:
    m, k, n = (int(words[name]) for name in "mkn")
    lead = (1,) if "rank" in words else (int(words["batch"]),) if "batch" in words else ()
    tx, ty = "tx" in words, "ty" in words
    x_shape, y_shape = (*lead, *((k, m) if tx else (m, k))), (*lead, *((n, k) if ty else (k, n)))
    x = _held(*x_shape) if words.get("x") == "const" else _run(*x_shape)
    y = _held(*y_shape[-2:]) if words.get("y") == "const" else _run(*y_shape)
    net = Net()
    net.op("matmul", (*lead, m, n), x=x, y=y, transpose_x=_const(tx), transpose_y=_const(ty))
    return net.sites


def _conv(words: Words) -> list[Site]:
    k, c, n, s, st, g = (int(words[name]) for name in ("k", "c", "n", "s", "st", "g"))
    more = {"bias": _held(n)} if words["bias"] == "1" else {}
    net = Net()
    net.op("conv", (1, n, -(-s // st), -(-s // st)), x=_run(1, c, s, s), weight=_held(n, c // g, k, k), **more)
    return net.sites


def _norm(words: Words) -> list[Site]:
    x, axes = _run(*_sizes(words["x"])), tuple(int(axis) for axis in words["axes"].split(","))
    net = Net()
    named = {"axis": _const(axes[0])} if words["op"] == "softmax" else {"axes": _const(axes)}
    net.op(words["op"], x.shape, x=x, **named)
    return net.sites


def _residual(words: Words) -> list[Site]:
    net, x = Net(), _run(*_sizes(words["x"]))
    net.op("add", x.shape, x=x, y=net.op(words["act"], x.shape, x=x))
    return net.sites


def _mlp(words: Words) -> list[Site]:
    net, x = Net(), _run(1, int(words["m"]), int(words["k"]))
    y = net.mlp(x, int(words["h"]), words["act"], words.get("bias", ""))
    if "residual" in words:
        net.op("add", x.shape, x=x, y=y)
    return net.sites


def _lnproj(words: Words) -> list[Site]:
    net = Net()
    net.product(net.norm(_run(1, int(words["m"]), int(words["k"]))), int(words["n"]))
    return net.sites


def _attention(words: Words) -> list[Site]:
    net, shape = Net(), (int(words.get("heads", "1")), int(words["s"]), int(words["d"]))
    q = _run(*shape)
    y = net.attention(q, _run(*shape), _run(*shape), scale="scale" in words)
    if "residual" in words:
        net.op("add", shape, x=q, y=y)
    return net.sites


def _block(words: Words) -> list[Site]:
    net, width = Net(), int(words["d"])
    x = _run(1, int(words["s"]), width)
    for _ in range(int(words["depth"])):
        y = net.norm(x)
        parts = [net.product(y, width) for _ in range(3)] if words["proj"] == "1" else [y, y, y]
        z = net.attention(*parts, scale=True)
        x = net.op("add", x.shape, x=x, y=net.product(z, width) if words["proj"] == "1" else z)
        x = net.op("add", x.shape, x=x, y=net.mlp(net.norm(x), 4 * width, "gelu"))
    return net.sites


def _chain(words: Words) -> list[Site]:
    width, net = int(words["d"]), Net()
    x = _run(1, int(words["s"]), width)
    steps: dict[str, Callable[[Tensor], Tensor]] = {
        "matmul": lambda x: net.product(x, width), "layer_norm": net.norm,
        "bias": lambda x: net.op("add", x.shape, x=x, y=_held(1, 1, width)),
        "scale": lambda x: net.op("mul", x.shape, x=x, y=_held()),
        "add": lambda x: net.op("add", x.shape, x=x, y=_run(*(n or 1 for n in x.shape))),
        "softmax": lambda x: net.op("softmax", x.shape, x=x, axis=_const(-1)),
    }  # fmt: skip
    for kind in words["ops"].split("+"):
        x = steps[kind](x) if kind in steps else net.op(kind, x.shape, x=x)
    return net.sites


def _two_products(words: Words) -> list[Site]:
    """Two products of one input added up, or with `serial` of each other."""
    width, net = int(words["d"]), Net()
    x = _run(1, int(words["s"]), width)
    first = net.product(x, width)
    second = net.product(first if "serial" in words else x, width)
    net.op("add", x.shape, x=first if "serial" not in words else x, y=second)
    return net.sites


FORMS: dict[str, Callable[[Words], list[Site]]] = {
    "binary": _binary, "unary": _unary, "matmul": _matmul, "conv": _conv, "norm": _norm, "residual": _residual, "mlp": _mlp,
    "lnproj": _lnproj, "attention": _attention, "block": _block, "chain": _chain, "branch": _two_products,
    "serial": lambda words: _two_products({**words, "serial": "1"}),
}  # fmt: skip
