"""The base of all Fenchel-Young losses: definition, targets, and how a loss is declared.

The losses that have names stand in the files of their mappings; `pyentmax.reference.fenchel_young`
has the loss of any mapping.
"""
