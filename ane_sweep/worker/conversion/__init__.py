"""Helpers of stage convert: ops that coremltools lacks, hints for failures, shortcuts, and the packages that it writes."""
