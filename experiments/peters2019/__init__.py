"""Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models."""
