"""The torch module of each op, read from what packages keep."""

import json

import pytest

from ane_sweep.mil import modules, package
from ane_sweep.mil.modules import NOTES_KEY, find_modules
from ane_sweep.mil.proto import MIL_pb2, Model_pb2


def made(ops, notes=None):
    """A package of (type, output, inputs)."""
    spec = Model_pb2.Model(specificationVersion=8)
    function = spec.mlProgram.functions["main"]
    function.opset = "CoreML7"
    for kind, name, reads in ops:
        proto = function.block_specializations["CoreML7"].operations.add(type=kind)
        proto.outputs.add(name=name)
        for number, read in enumerate(reads):
            proto.inputs[f"p{number}"].arguments.append(MIL_pb2.Argument.Binding(name=read))
    if notes is not None:
        spec.description.metadata.userDefined[NOTES_KEY] = notes
    return package.Package(None, None, spec)


def paths(*given):
    found = find_modules(made(*given))
    return found.basis, {name: path for (_, name), path in found.paths.items()}


BLOCKS = [
    row
    for n in (0, 1)
    for row in [
        ("const", f"h_{n}_self_attn_q_weight_to_fp16", []),
        ("const", f"h_{n}_self_attn_o_weight_to_fp16", []),
        ("const", f"h_{n}_norm_weight_to_fp16", []),
        ("linear", f"linear_{n}0", ["x", f"h_{n}_self_attn_q_weight_to_fp16"]),
        ("softmax", f"op_{n}1", [f"linear_{n}0"]),
        ("linear", f"linear_{n}2", [f"op_{n}1", f"h_{n}_self_attn_o_weight_to_fp16"]),
        ("add", f"op_{n}3", ["x", f"linear_{n}2"]),
        ("layer_norm", f"op_{n}4", [f"op_{n}3", f"h_{n}_norm_weight_to_fp16"]),
    ]
]


def test_weights_name_modules_and_ops_between_them_get_what_both_share():
    basis, found = paths(BLOCKS)
    assert basis == "weights"
    assert [found[f"{name}"] for name in ("linear_10", "op_11", "linear_12", "op_13", "op_14")] == [
        "h.1.self_attn.q", "h.1.self_attn", "h.1.self_attn.o", "h.1", "h.1.norm",
    ]  # fmt: skip


def test_notes_of_the_conversion_decide_which_underscore_is_a_dot():
    notes = json.dumps({"": "Net at n.py:1", "h": "", "h.0": "", "h.0.self": "", "h.0.self.attn_q": "A at n.py:7"})
    basis, found = paths(BLOCKS, notes)
    assert basis == "noted" and found["linear_00"] == "h.0.self.attn_q"


@pytest.mark.parametrize("notes", ["{", "[]", "3"])
def test_damaged_notes_are_left_aside(notes):
    assert paths(BLOCKS, notes)[0] == "weights"


def test_a_weight_stored_once_names_its_first_reader_alone():
    ops = [*BLOCKS, ("layer_norm", "last", ["op_14", "h_0_norm_weight_to_fp16"])]
    assert paths(ops)[1]["last"] == ""


def test_torch_export_and_compressed_weights_keep_the_parameter_behind_their_own_marks():
    ops = [
        ("const", "p_a_q_weight_lut", []), ("constexpr_lut_to_dense", "p_a_q_weight_palettized", ["p_a_q_weight_lut"]),
        ("const", "p_b_bias_to_fp16", []), ("linear", "one", ["x", "p_a_q_weight_palettized"]), ("add", "two", ["one", "p_b_bias_to_fp16"]),
    ]  # fmt: skip
    assert paths(ops)[1] == {"one": "a_q", "two": "b"}


def test_without_weights_names_of_ops_tell_it_and_made_up_names_tell_nothing():
    named = [("conv", "encoder_conv_out", ["x"]), ("relu", "encoder_act", []), ("add", "var_12_cast_fp16", [])]
    assert paths(named) == (
        "names",
        {"encoder_conv_out": "encoder.conv_out", "encoder_act": "encoder.act", "var_12_cast_fp16": ""},
    )
    assert paths([("add", "var_12_cast_fp16", []), ("conv", "input_3", [])])[0] == "nothing"


def test_folded_batch_norms_are_no_module():
    ops = [("const", "input_5_weight_0_to_fp16", []), ("conv", "input_7_cast_fp16", ["x", "input_5_weight_0_to_fp16"])]
    assert paths(ops)[0] == "nothing" and modules.find_modules(made(ops)).paths == {("main", "input_7_cast_fp16"): ""}


def test_a_torchscript_module_has_a_class_and_no_line():
    import torch

    from ane_sweep.worker.programs.mlprogram.convert import note_modules

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    for made in (torch.jit.trace(net, torch.zeros(1, 4)), torch.jit.script(net)):
        notes = json.loads(note_modules([made])[NOTES_KEY])
        assert set(notes) == {"", "0", "1"} and notes[""].endswith(" at a native module")
