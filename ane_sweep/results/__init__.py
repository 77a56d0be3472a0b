"""The conversion of task outcomes to records, and their analysis."""
