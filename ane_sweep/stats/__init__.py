"""Every test, quantile, rank and PSNR, once. Of scipy only `scipy.special` is used where a sweep runs, inside functions:
importing `scipy.stats` takes 0.7 s, which every process that scores would pay."""
