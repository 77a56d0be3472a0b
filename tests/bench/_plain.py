"""What a user writes without us: weights in memory, trace, ct.convert, save, all as coremltools and torch have it.

python -m tests.bench._plain NAME VARIANT FOLDER
"""

import json
import sys
from pathlib import Path

from ane_sweep.bridge.protocol import peak_bytes


def convert_one(name: str, variant: str, folder: str) -> dict[str, int]:
    """Convert the very module that we convert; what it took."""
    import coremltools as ct
    import numpy as np
    import torch

    from ane_sweep.worker.models import _build
    from tests.bench.conversions import asked

    params = asked(name, variant)
    module, ports = _build.build(params, {}, variant)
    found = ports()
    with torch.no_grad():
        traced = torch.jit.trace(
            module, tuple(torch.zeros(port.shape, dtype=getattr(torch, port.dtype)) for port in found.inputs)
        )
    real = {"int32": np.int32, "float32": np.float16}
    model = ct.convert(
        traced,
        inputs=[ct.TensorType(port.name, port.shape, real[port.dtype]) for port in found.inputs],
        outputs=[ct.TensorType(port.name, dtype=real[port.dtype]) for port in found.outputs],
        minimum_deployment_target=getattr(ct.target, params["target"]),
        skip_model_load=True,
    )
    package = Path(folder, "plain.mlpackage")
    model.save(str(package))
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    return {"package_bytes": size, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    print(json.dumps(convert_one(*sys.argv[1:])))
