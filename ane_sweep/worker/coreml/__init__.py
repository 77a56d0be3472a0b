"""Helpers of the stages that ask Core ML itself: steps in processes of their own, compiled programs, traces of a plan."""
