"""Reading protobufs without coremltools, and living beside it."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys

import pytest
from ane_sweep.mil import proto
assert not [name for name in sys.modules if name.split(".")[0] == "coremltools"], "a bare coremltools was left behind"
message = proto.Model_pb2.Model(specificationVersion=9)
if {real}:
    import coremltools
    from coremltools.proto import Model_pb2
    theirs = Model_pb2.Model()
    theirs.CopyFrom(message)
    assert theirs.specificationVersion == 9
    assert coremltools.proto.FeatureTypes_pb2 and coremltools.convert
print("done")
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120).stdout


def test_coremltools_is_not_imported():
    assert "done" in run(SCRIPT.format(real=False))


@pytest.mark.slow
def test_the_real_coremltools_can_be_imported_afterwards():
    assert "done" in run(SCRIPT.format(real=True))


def test_it_works_where_coremltools_was_imported_before():
    import coremltools as ct

    from ane_sweep.mil import proto

    spec = ct.proto.Model_pb2.Model(specificationVersion=7)
    ours = proto.Model_pb2.Model()
    ours.ParseFromString(spec.SerializeToString())
    assert ours.specificationVersion == 7 and ours == spec
