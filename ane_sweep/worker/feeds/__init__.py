"""Inputs that models are fed with, their outputs, and how far two sets of outputs agree."""
