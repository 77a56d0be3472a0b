"""Types and files that planner and worker share, or that are stored; light imports only."""
