"""Compute log(sum(exp(x))) as max + log(sum(exp(x - max))), which cannot overflow."""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import add_shifted_sum, check_again, read_log_sum_exp
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=81,
    kind="accuracy",
    lost_db=4.0,
    lost_why="the sum, its logarithm and the addition are rounded; the reference rounds the single op once (-1.9 dB measured)",
    help="fp16 reduce_log_sum_exp and log(sum(exp(x))) -> max + log(sum(exp(x - max)))",
    condition="no +infinity in x; a row of -infinity alone stays -infinity",
    bound=1e-5,
    derivation="a subtraction, a sum, a logarithm and an addition in fp32, 3e-7 of the largest term; terms of one output may cancel",
    source="apple/coremltools issue 2690 and pull request 2726; rustnn/rustnn pull request 213",
    evidence="0 beyond x = 7.63 with 32 channels on the Neural Engine (issue 2690); right after the change on an M4, over "
    "all compute units (rustnn)",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("reduce_log_sum_exp", "log"):
        if read_log_sum_exp(graph, node) and graph.shape(node.outputs[0]):
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    x, axes, keeps = check_again(read_log_sum_exp(graph, site.node))
    build = Builder(graph, site.node)
    largest, _, rest = add_shifted_sum(build, x, axes)
    made = build.op("add", {"x": largest, "y": rest}, graph.shape(largest))
    if not keeps:
        made = build.op("squeeze", {"x": made, "axes": axes}, graph.shape(site.node.outputs[0]))
    graph.replace(site.node.outputs[0], made)
