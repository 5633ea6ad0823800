"""Decoding: searches with certificates, complete lists, sampling, forced decoding, trees."""

from __future__ import annotations

from pyentmax.seq2seq.decoding.beam import beam_search
from pyentmax.seq2seq.decoding.exact import exact_search
from pyentmax.seq2seq.decoding.forced import ForcedDecoding, ForcedStep, forced_decoding
from pyentmax.seq2seq.decoding.greedy import greedy_search
from pyentmax.seq2seq.decoding.hypotheses import Hypothesis, SearchResult
from pyentmax.seq2seq.decoding.hypothesis_tree import HypothesisNode, HypothesisTree
from pyentmax.seq2seq.decoding.listing import OutputList, list_outputs
from pyentmax.seq2seq.decoding.sampling import ancestral_sampling
from pyentmax.seq2seq.decoding.truncated import Truncated
from pyentmax.seq2seq.models.protocol import Decodable, Step, take

__all__ = [
    "SearchResult",
    "Decodable",
    "ForcedDecoding",
    "ForcedStep",
    "Hypothesis",
    "HypothesisNode",
    "HypothesisTree",
    "OutputList",
    "Step",
    "Truncated",
    "ancestral_sampling",
    "beam_search",
    "exact_search",
    "forced_decoding",
    "greedy_search",
    "list_outputs",
    "take",
]
