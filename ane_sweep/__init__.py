"""ane-sweep: a declarative experiment-matrix runner for the Apple Neural Engine and Core ML."""

__version__ = "0.1.0"
