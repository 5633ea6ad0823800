"""Decoding: greedy, beam and exact search, certificates, and the tree of hypotheses."""

from __future__ import annotations

from ..models.protocol import Decodable, JoinableDecodable, Step
from .beam import beam_search
from .exact import exact_search
from .greedy import greedy_search
from .hypotheses import BeamResult, Hypothesis
from .lattice import HypothesisNode, HypothesisTree

__all__ = [
    "BeamResult",
    "Decodable",
    "Hypothesis",
    "HypothesisNode",
    "HypothesisTree",
    "JoinableDecodable",
    "Step",
    "beam_search",
    "exact_search",
    "greedy_search",
]
