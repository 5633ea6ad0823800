"""Vasylenko, Pitorro, Martins, Treviso (2025): long-context generalization, sparse attention."""
