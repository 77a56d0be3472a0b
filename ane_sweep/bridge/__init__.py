"""What crosses the wall between planner and worker, or is kept; light imports only."""
