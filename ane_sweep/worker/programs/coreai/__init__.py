"""Core AI's assets: coreai-torch converts models to them, and Core AI's own CPU runtime executes them on any host."""

from ane_sweep.bridge.programs import ProgramKind

PROGRAM = ProgramKind(
    title="Core AI's asset", suffix=".aimodel", toolchain="coreai", codes="CoreAI",
    distributions=("coreai-core", "coreai-torch"),
    lacks=("cache", "classes", "converter", "inputs", "mask_dtype", "norm", "output_type", "pieces", "torch_version"),
)  # fmt: skip
