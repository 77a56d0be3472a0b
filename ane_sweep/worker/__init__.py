"""The worker: the processes that do the tasks; only they import torch."""
