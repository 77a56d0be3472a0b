"""A package's judgement for pull requests: budgets, a baseline, and the formats that hosted CI reads. It loads nothing heavy."""
