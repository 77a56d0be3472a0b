"""ML Programs: what coremltools makes of a model, and Core ML runs."""

from ane_sweep.bridge.programs import ProgramKind

PROGRAM = ProgramKind(title="Core ML's ML Program", suffix=".mlpackage", packages=True)
