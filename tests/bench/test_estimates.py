"""The estimates beside coremltools' published medians: each inside its band."""

import pytest

from ane_sweep.bench import estimates
from ane_sweep.placement import chips, latency

# what torchvision's nets ask for at 224x224: FLOP, and bytes of their weights in fp16
WORK = {"ResNet50": (8.2e9, 51.0e6), "MobileNetV2": (0.6e9, 6.9e6), "MobileNetV3-small": (0.11e9, 5.0e6)}


@pytest.mark.parametrize("chip", estimates.CHIPS)
@pytest.mark.parametrize("name", WORK)
def test_a_published_median_is_inside_the_band_of_its_estimate(name, chip):
    flop, weights = WORK[name]
    found = latency.estimate([latency.Work(ane_flop=flop, ane_weight_bytes=int(weights), on_ane=True)], chips.get(chip))
    median = estimates.published(name, chip)
    if median is None:
        assert (name, chip) == ("MobileNetV3-small", "a17_pro"), "the guide has the others"
        return
    assert found.low_ms <= median <= found.high_ms


def test_weights_that_stay_on_the_chip_cost_no_streaming_and_larger_ones_all_of_it():
    a16 = chips.get("a16")
    at = [latency.estimate([latency.Work(1e6, count, on_ane=True)], a16).ms for count in (1, 7_100_000, 7_100_001)]
    assert at[0] == at[1] and at[2] - at[1] == pytest.approx(7_100_001 / (a16.weight_gbs * 1e6), rel=0.01)


@pytest.mark.slow
@pytest.mark.skipif(estimates.missing() is not None, reason=str(estimates.missing()))
def test_the_nets_themselves_are_converted_and_each_median_is_inside(monkeypatch):
    rows = estimates.run()
    assert len(rows) == 5 and {row.bar for row in rows} == {"inside its band"}
