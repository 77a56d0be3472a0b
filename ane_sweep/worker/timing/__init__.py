"""Helpers of stage latency: taking samples, timing the parts of a prediction, and warnings about scattered samples."""
