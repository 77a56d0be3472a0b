"""The implementation of the functions of `ane_sweep`: arguments become words of the command line, records become objects."""
