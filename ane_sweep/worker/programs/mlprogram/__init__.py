"""ML Programs: coremltools converts models to them, and Core ML runs them."""

from ane_sweep.bridge.programs import ProgramKind

PROGRAM = ProgramKind(title="Core ML's ML Program", suffix=".mlpackage", packages=True, codes="CoreML")
