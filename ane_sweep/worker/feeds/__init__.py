"""The inputs of models, their outputs, and the agreement of two sets of outputs."""
