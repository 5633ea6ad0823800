"""Zhao, Lin, Zhang, Ren, Su and Sun (2019), Explicit Sparse Transformer."""
