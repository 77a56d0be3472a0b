"""Each numeric rule: a probe net that is wrong as a device computes, the warning, and the mended net without either."""

import numpy as np
import pytest

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb
from hazards import probes

NAMES = (
    "softplus_cliff", "log_sum_exp", "log_softmax", "log_cumsum_exp", "log1p_exp", "exp_unshifted", "infinite_mask",
    "rms_norm_squares", "rms_norm_epsilon", "epsilon_vanishes", "long_sums", "narrow_ids", "nan_tests",
)  # fmt: skip


def test_every_probe_has_a_name_here():
    assert tuple(probe.rule for probe in probes.list_probes()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_is_wrong_and_named_and_right_once_mended(name, tmp_path):
    (probe,) = [one for one in probes.list_probes() if one.rule == name]
    path = probes.build(probe, tmp_path)
    assert probes.measure_error(path, probe.values, probe.effects, probe.truth) > 0.02
    finding = probes.find_named(path)[name]
    assert finding.source and finding.do and finding.op
    assert not isinstance(probe.mended, str) or probe.mended in finding.rewrite.split(",")
    made = probes.mend(probe, path)
    values = probe.mended_values or probe.values
    assert probes.measure_error(made, values, probe.effects, probe.truth) < 0.02
    assert name not in probes.find_named(made)


@pytest.mark.parametrize(("rows", "is_wrong"), [(32_768, True), (32_767, False)])
def test_ids_on_their_way_through_int16_are_named_if_the_table_has_more_rows(rows, is_wrong, tmp_path):
    table = np.arange(rows, dtype=np.float32)[:, None] / rows

    def body(ids):
        narrow = mb.squeeze(x=mb.cast(x=ids, dtype="int16"), axes=[0])
        return mb.gather(x=table, indices=mb.cast(x=narrow, dtype="int32"), axis=0)

    path = probes.save(tmp_path / "m.mlpackage", body, ids=("int32", (1, 1)))
    found = probes.find_named(path)
    assert ("narrow_ids" in found) == is_wrong
    assert not is_wrong or "int16" in found["narrow_ids"].why + found["narrow_ids"].what
