"""The planner, which turns words into tasks; it starts nothing."""
