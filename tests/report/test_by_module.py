"""Placement and drift by torch module as the report shows them."""

from dataclasses import replace
from types import SimpleNamespace

import constructed

from ane_sweep.mil import package
from ane_sweep.mil.modules import NOTES_KEY
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.placement.types import ModulePlace, Ops
from ane_sweep.reference import drift_by_module
from ane_sweep.reference.trace import ObservedValue
from ane_sweep.report import blocks, by_module, drift, views
from ane_sweep.results.headline import shipped_chip

PLACES = [
    ModulePlace("enc.layer.0-5", 0, Ops(2, 0, 10, 12), 0.75, 6, "Layer at net.py:3"),
    ModulePlace("head", 0, Ops(0, 0, 1, 1), 0.25),
]


def test_cells_with_equal_modules_share_a_table():
    records = constructed.records(3)
    for record in records:
        record.placement = [
            replace(entry, modules=PLACES)
            if entry.chip == shipped_chip(record) and entry.kind == "predicted"
            else entry
            for entry in record.placement
        ]
    section = by_module.section(views.Cells(records))
    assert section is not None
    text = "".join(map(blocks.markdown, section.blocks))
    assert text.count("| enc.layer.0-5 | 75.0 | 10 | 0 | 2 | Layer at net.py:3 |") == 1
    assert by_module.section(views.Cells(constructed.records(3))) is None


def observed(name, value):
    return ObservedValue(0, "add", name, (1,), "float16", 0, 0, 0, 1.0, drift=value, psnr_db=50.0)


def test_drift_is_that_before_a_module_and_at_its_end():
    spec = Model_pb2.Model()
    function = spec.mlProgram.functions["main"]
    function.opset = "o"
    names = ["a_weight", "b_weight"]
    for name in names:
        function.block_specializations["o"].operations.add(type="const").outputs.add(name=name)
    for value, weight in (("one", "a_weight"), ("two", "b_weight")):
        proto = function.block_specializations["o"].operations.add(type="linear")
        proto.outputs.add(name=value)
        proto.inputs["w"].arguments.add(name=weight)
    spec.description.metadata.userDefined[NOTES_KEY] = '{"a": "A at n.py:1", "b": "B at n.py:9"}'
    ops = [SimpleNamespace(outputs=["one"]), SimpleNamespace(outputs=["two"])]
    program = SimpleNamespace(package=package.Package(None, None, spec), ops=ops)
    model = SimpleNamespace(function="main", program=program)
    rows = drift_by_module.roll_up([observed("one", 0.1), observed("two", 0.4)], model)
    assert [(row.path, row.before, row.drift) for row in rows] == [("a", 0.0, 0.1), ("b", 0.1, 0.4)]
    assert drift_by_module.format_drifts(rows)[1] == "b: drift 1.0e-01 to 4.0e-01, PSNR 50.0 dB at its end"
    assert drift_by_module.roll_up([observed("one", 0.0)], model) == []
    losses = [drift.ModuleLoss(**row.to_dict()) for row in rows]
    made = drift.blocks(drift.Drift("m", "fp16", 50.0, [(0, 50.0)], [], [], [], modules=losses))
    assert "| b | 1 | 1.0e-01 | 4.0e-01 | 50.0 |" in "".join(map(blocks.markdown, made))
