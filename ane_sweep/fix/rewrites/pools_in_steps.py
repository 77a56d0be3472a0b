"""Take the maximum over a wide window in steps of narrower ones, as in the pyramids of detectors (SPP)."""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import check_again, number, numbers
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text
from ane_sweep.fix.windows import Window, read_window

_WIDEST = 8

REWRITE = ProgramRewrite(
    order=17,
    kind="placement",
    help="max_pool wider than 8 -> max_pools at most 8 wide, one after another",
    condition="over height and width of known sizes, without ceil mode; less padding than window",
    bound=0.0,
    derivation="the maximum of maxima",
    source="751K study (M4: windows of 1x9 and 13x13 are refused, 8x8 and 9x1 are not)",
    evidence="predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("max_pool"):
        window = _read(graph, node)
        if window is None or window.sizes[1] <= _WIDEST:
            continue
        if all(max(pair) < size for pair, size in zip(window.padding, window.sizes)):
            yield Site(node)


def _read(graph: Graph, node: Node) -> Window | None:
    is_plain = number(graph, node, "ceil_mode", 0) == 0
    return read_window(graph, node, numbers(graph, node, "kernel_sizes") or []) if is_plain else None


def apply(graph: Graph, site: Site) -> None:
    node, build = site.node, Builder(graph, site.node)
    window = check_again(_read(graph, node), "its window has changed")
    x, (left, right), (high, wide) = str(node.read("x")), window.padding[1], window.sizes
    above, down = window.padding[0], window.strides[0]
    while wide:
        part = min(_WIDEST, wide)
        across = window.strides[1] if part == wide else 1
        before, after = min(left, part - 1), min(right, part - 1)  # as much as fits, so that later steps see no less
        batch, channels, rows, columns = graph.shape(x)
        rows, columns = (rows + sum(above) - high) // down + 1, (columns + before + after - part) // across + 1
        given: dict[str, Given] = {
            "x": x, "kernel_sizes": [high, part], "strides": [down, across], "pad_type": Text("custom"),
            "pad": [*above, before, after], "ceil_mode": False,
        }  # fmt: skip
        x = build.op("max_pool", given, (batch, channels, rows, columns))
        left, right, wide = left - before, right - after, wide - part + 1 if wide > part else 0
        high, above, down = 1, (0, 0), 1
    graph.replace(node.outputs[0], x)
