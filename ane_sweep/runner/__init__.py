"""Runs a plan, one process a task."""
