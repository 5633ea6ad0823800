"""Decoding: greedy and beam search, certificates of exactness, and the tree of hypotheses."""

from __future__ import annotations

from ..models.protocol import Decodable, Step
from .beam import beam_search
from .greedy import greedy_search
from .hypotheses import BeamResult, Hypothesis
from .lattice import HypothesisNode, HypothesisTree

__all__ = [
    "BeamResult",
    "Decodable",
    "Hypothesis",
    "HypothesisNode",
    "HypothesisTree",
    "Step",
    "beam_search",
    "greedy_search",
]
