"""A small sample of coremltools' own tests through the drop-in, as CI runs it; the whole is `python -m tests.proof.upstream`."""

import os
import subprocess
import sys

import pytest

FILES = ("ops/tests/iOS16/", "iOS18/test_states", "iOS17/test_quantization", "test_state_passes", "test_optimize_linear_passes",
         "test_async_wrapper", "test_mlmodel.py")  # fmt: skip


@pytest.mark.slow
def test_a_sample_of_coremltools_own_tests_passes(tmp_path):
    command = [sys.executable, "-m", "tests.proof.upstream", "--seed", "3", "--out", str(tmp_path), *FILES]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "items passed: 100.00 %" in done.stdout
