"""Behind the functions of `ane_sweep`: what is asked in Python becomes words, and records become objects of a notebook."""
