"""The runner: it runs a plan, one process per task."""
