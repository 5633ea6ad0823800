"""The mathematics, to be read from top to bottom: entropies, thresholds, losses, mappings.

See `mappings` for a file per mapping, with its problem, its textbook version, and its derivatives.
"""
