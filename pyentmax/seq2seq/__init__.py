"""Sequence-to-sequence models in plain NumPy, from the autograd tape to the commands.

`autograd` is the tape, `nn` and `models` what it trains, `training` the loop, `decoding` the
searches, `data` and `tasks` what a command reads and saves, `analysis` and `plotting` what a
trained model shows.
"""
