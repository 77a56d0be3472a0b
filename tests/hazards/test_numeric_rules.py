"""Each numeric rule: a probe net that is wrong as a device computes, the warning, and the mended net without either."""

import pytest

pytest.importorskip("coremltools")
from hazards import probes

NAMES = (
    "softplus_cliff", "log_sum_exp", "log_softmax", "log_cumsum_exp", "log1p_exp", "exp_unshifted", "infinite_mask",
    "rms_norm_squares", "rms_norm_epsilon", "epsilon_vanishes", "long_sums", "ids_in_fp16", "nan_tests",
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
