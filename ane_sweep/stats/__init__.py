"""Compute every statistic of a sweep, each in one place: quantiles, intervals, tests, ranks and PSNR.

    import numpy as np
    from ane_sweep.stats import psnr, ranks, samples, student

    summary = samples.summarise([1.02, 0.98, 1.00, 1.01, 0.99])    # of one process
    print(summary.median, summary.iqr_share, (summary.low, summary.high))

    before = {0: 1.00, 1: 1.02, 2: 0.99}                           # round -> median of that round's process
    after = {0: 1.10, 1: 1.13, 2: 1.09}
    found = student.weigh_difference(before, after)                # of logs; None with fewer than 3 processes a side
    print(found.p, found.mean)

    print(psnr.psnr_db(reference=np.ones(4), candidate=np.ones(4) * 1.01))
    print(ranks.spearman([1, 2, 3], [10, 30, 20]))

Samples keep their own unit: a Summary of milliseconds is in milliseconds. Differences are of natural logs, so
math.exp(found.mean) is the ratio of the two. PSNR is in decibels with peak = max |reference|. A test of too few samples
returns None; no samples at all, or arrays of different shapes, raise ValueError.

Of scipy only `scipy.special` is used, inside functions: importing `scipy.stats` takes 0.7 s, which every process that
scores would pay.
"""
