"""Mistakes that type checkers report."""

import numpy as np
import torch

import pyentmax as pe
import pyentmax.torch as pt

z, t = np.zeros((8, 5)), torch.zeros(8, 5)
pe.entmax15(z, maks=z > 0)  # mistake: mask
pe.entmax15.jvp(z, z, alpha=1.3)  # mistake: entmax15 has no alpha
pe.entmax.jvp(z)  # mistake: v
pe.topk_softmax.jacobian(z)  # mistake: k
pe.entmax15.loss(z, [0] * 8, reduction="avg")  # mistake: mean
pe.entmax.loss(z, [0] * 8, alfa=1.3)  # mistake: alpha
pe.entmax15.jpv(z, z)  # mistake: jvp
pe.sparsemax(z).backward()  # mistake: an array, which has no such method
pt.entmx15(t)  # mistake: entmax15
pt.Entmax15Loss(reducton="sum")  # mistake: reduction
