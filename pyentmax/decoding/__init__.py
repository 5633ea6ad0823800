"""Decoding: greedy, beam and exact search, forced decoding, certificates, hypothesis trees."""

from __future__ import annotations

from ..models.protocol import Decodable, JoinableDecodable, Step
from .beam import beam_search
from .exact import exact_search
from .forced import ForcedDecoding, ForcedStep, forced_decoding
from .greedy import greedy_search
from .hypotheses import BeamResult, Hypothesis
from .lattice import HypothesisNode, HypothesisTree

__all__ = [
    "BeamResult",
    "Decodable",
    "ForcedDecoding",
    "ForcedStep",
    "Hypothesis",
    "HypothesisNode",
    "HypothesisTree",
    "JoinableDecodable",
    "Step",
    "beam_search",
    "exact_search",
    "forced_decoding",
    "greedy_search",
]
