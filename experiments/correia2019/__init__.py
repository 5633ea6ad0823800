"""Correia, Niculae and Martins (2019), Adaptively Sparse Transformers."""
