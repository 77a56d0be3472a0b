"""The search for the best cell of a matrix without running all of it: limits drop cells early, and estimates order the timings."""
