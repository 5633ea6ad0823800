"""Layers as functions of a flat dict of parameters, and what trains them."""
