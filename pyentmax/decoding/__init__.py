"""Decoding: greedy, beam and exact search with certificates, sampling, forced decoding, trees."""

from __future__ import annotations

from pyentmax.decoding.beam import beam_search
from pyentmax.decoding.constrained import Constrained
from pyentmax.decoding.exact import exact_search
from pyentmax.decoding.forced import ForcedDecoding, ForcedStep, forced_decoding
from pyentmax.decoding.greedy import greedy_search
from pyentmax.decoding.hypotheses import Hypothesis, SearchResult
from pyentmax.decoding.hypothesis_graph import GraphNode, HypothesisGraph
from pyentmax.decoding.hypothesis_tree import HypothesisNode, HypothesisTree
from pyentmax.decoding.sampling import ancestral_sampling
from pyentmax.decoding.truncated import Truncated
from pyentmax.models.protocol import Decodable, JoinableDecodable, Step

__all__ = [
    "SearchResult",
    "Constrained",
    "Decodable",
    "ForcedDecoding",
    "ForcedStep",
    "GraphNode",
    "Hypothesis",
    "HypothesisGraph",
    "HypothesisNode",
    "HypothesisTree",
    "JoinableDecodable",
    "Step",
    "Truncated",
    "ancestral_sampling",
    "beam_search",
    "exact_search",
    "forced_decoding",
    "greedy_search",
]
