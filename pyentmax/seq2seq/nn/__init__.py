"""Layers as functions of a flat dict of parameters, and the optimisers that train them."""
