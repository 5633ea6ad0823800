"""Five mistakes that type checkers report."""

import numpy as np
import torch

import pyentmax as pe
import pyentmax.torch as pt

z, t = np.zeros((8, 5)), torch.zeros(8, 5)
pe.entmax15(z, maks=z > 0, workers=2)  # mistake: mask
pe.entmax15_loss(z, [0] * 8, reduction="avg")  # mistake: mean
pe.sparsemax(z).backward()  # mistake: an array, which has no such method
pt.entmx15(t)  # mistake: entmax15
pt.Entmax15Loss(reducton="sum")  # mistake: reduction
