"""The sweep that runs by itself: a time budget, rotation, comparison with the good nights, retention, a summary."""
