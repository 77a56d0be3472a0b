"""The compute devices of the Apple chip that placement is predicted for; this host has none of them.

`MLComputeDevice` objects compare by identity in coremltools, so there is one of each.
"""

from functools import cache


class _MLCPUComputeDeviceProxy:
    pass


class _MLGPUComputeDeviceProxy:
    pass


class _MLNeuralEngineComputeDeviceProxy:
    def get_total_core_count(self) -> int:
        """Return the cores of the Neural Engine: 16 from M1 to M5 but for the Ultras (Apple's specifications)."""
        return 16


@cache
def compute_devices() -> dict[str, object]:
    """Return coremltools' own objects for "cpu", "gpu" and "ane"."""
    from coremltools.models import compute_device

    return {
        "cpu": compute_device.MLCPUComputeDevice(_MLCPUComputeDeviceProxy()),
        "gpu": compute_device.MLGPUComputeDevice(_MLGPUComputeDeviceProxy()),
        "ane": compute_device.MLNeuralEngineComputeDevice(_MLNeuralEngineComputeDeviceProxy()),
    }


# compute_units by the name of coremltools' enum -> devices that Core ML may use
ALLOWED = {
    "CPU_ONLY": ("cpu",),
    "CPU_AND_GPU": ("cpu", "gpu"),
    "CPU_AND_NE": ("cpu", "ane"),
    "ALL": ("cpu", "gpu", "ane"),
}
