"""fp16 programs with chosen ops in fp32."""

import pytest

from ane_sweep.errors import StageError
from ane_sweep.mil import element_types, graph, package


def dtypes(folder, kind: str) -> set[str]:
    found = graph.view_program(package.read(folder / "model.mlpackage")).ops
    return {element_types.tensor_type(op.proto.outputs[0].type).dtype for op in found if op.type == kind}


@pytest.mark.parametrize(
    ("patterns", "wide"),
    [(("softmax",), {"softmax"}), (("*Norm",), {"layer_norm"}), (("soft*", "layer_norm"), {"softmax", "layer_norm"})],
)
def test_ops_by_type_and_by_module_stay_in_fp32(program, patterns, wide):
    folder = program("iOS18", fp32_ops=patterns)
    for kind in ("softmax", "layer_norm", "linear"):
        assert dtypes(folder, kind) == ({"fp32"} if kind in wide else {"fp16"})


def test_a_mean_stays_apart_where_it_is_asked_for(program):
    """A norm of single ops is not fused; its means alone are in fp32."""
    folder = program("iOS18", fp32_ops=("reduce_mean",), variant="split_einsum")
    assert dtypes(folder, "reduce_mean") == {"fp32"} and dtypes(folder, "conv") == {"fp16"}
    assert dtypes(folder, "layer_norm") == set()


def test_patterns_that_match_nothing_are_an_error_that_lists_the_types(program):
    with pytest.raises(StageError, match=r"match no op of this program, which has: .*softmax"):
        program("iOS18", fp32_ops=("nothing",))
