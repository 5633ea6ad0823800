"""The models of notebook 16: one head that finds an item among many, trained on rows of 2 to 16."""

from __future__ import annotations

import math

import numpy as np

import pyentmax
from pyentmax.seq2seq import autograd
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.optim import Adam

__all__ = ["LABELS", "WAYS", "examples", "model", "scale", "test", "train"]

LABELS, WIDTH = 10, 64
# Mapping of the head, and how its scores are scaled with the number of items.
WAYS = {
    "softmax": ("softmax", None),
    "1.5-entmax": ("entmax15", None),
    "sparsemax": ("sparsemax", None),
    "softmax · s log n": ("softmax", "log"),
    "1.5-entmax · s log n": ("entmax15", "log"),
    "ASEntmax": ("entmax15", "power"),
}


def examples(task, rng, size, n):
    """Items (size, n, features), queries, the place that is asked for, and its label."""
    rows, label = np.arange(size), rng.integers(LABELS, size=(size, n))
    at, query = rng.integers(n, size=size), np.ones((size, 1))
    if task == "key":
        x = rng.normal(size=(size, n, 16))
        query = x[rows, at] + 0.3 * rng.normal(size=(size, 16))
    elif task == "largest":
        x = rng.random((size, n, 1))
        at = x[..., 0].argmax(axis=-1)
    else:
        mark = rng.integers(1, 8, size=(size, n))
        mark[rows, at] = 0
        x = np.eye(8)[mark]
    items = np.concatenate([x, np.eye(LABELS)[label]], axis=-1)
    return items.astype(np.float32), query.astype(np.float32), at, label[rows, at]


def scale(params, n):
    """The learned scale of the scores of n items."""
    log = math.log(n + 1)
    if "s" in params:
        return params["s"] * log
    if "beta" in params:  # positive by softplus, γ in (−2, 2)
        power = autograd.exp(2 * autograd.tanh(params["gamma"]) * math.log(log))
        return 1 + autograd.log(1 + autograd.exp(params["beta"])) * power
    return Tensor(np.ones((), np.float32))


def model(params, mapping, items, query):
    """Scores of the labels, and the weights of the head."""
    size, n = items.shape[:2]
    h = autograd.relu(Tensor(items) @ params["W"] + params["b"])
    q = autograd.relu(Tensor(query) @ params["Q1"]) @ params["Q2"] * WIDTH**-0.5
    z = (h @ q.reshape(size, WIDTH, 1)).reshape(size, n) * scale(params, n)
    p = getattr(autograd, mapping)(z)
    average = (p.reshape(size, 1, n) @ h).reshape(size, WIDTH)
    return autograd.relu(average @ params["O1"] + params["c"]) @ params["O2"], p.data


def train(task, way, seed, updates):
    """Parameters after some updates on rows of random lengths, with the loss of softmax."""
    mapping, scaled = WAYS[way]
    rng = np.random.default_rng(seed)
    items, query, *_ = examples(task, rng, 1, 2)
    sizes = {"W": (items.shape[-1], WIDTH), "Q1": (query.shape[-1], WIDTH)}
    sizes |= {"Q2": (WIDTH, WIDTH), "O1": (WIDTH, WIDTH), "O2": (WIDTH, LABELS)}
    params = {name: rng.normal(size=shape) / shape[0] ** 0.5 for name, shape in sizes.items()}
    params |= {"b": np.zeros(WIDTH), "c": np.zeros(WIDTH)}
    params |= {
        "log": {"s": np.ones(())},
        "power": {"beta": np.zeros(()), "gamma": np.zeros(())},
    }.get(scaled, {})
    params = {name: x.astype(np.float32) for name, x in params.items()}
    optimizer = Adam(params)
    for update in range(updates):
        items, query, _, label = examples(task, rng, 128, int(rng.integers(2, 17)))
        leaves = {name: Tensor(x, requires_grad=True) for name, x in params.items()}
        scores, _ = model(leaves, mapping, items, query)
        autograd.fenchel_young_loss(scores, label, "softmax").backward()
        rate = 2e-3 * min(1, 20 * (update + 1) / updates, 1.05 - update / updates)
        optimizer.step({name: leaf.grad for name, leaf in leaves.items()}, rate)
    return params


def test(task, way, params, n, rng, tests):
    """Of rows of n items: share right, largest weight, support and entropy, means."""
    leaves, rows = {name: Tensor(x) for name, x in params.items()}, []
    size = max(1, min(tests, 2**15 // n))
    for _ in range(tests // size):
        items, query, _, label = examples(task, rng, size, n)
        scores, p = model(leaves, WAYS[way][0], items, query)
        right = np.mean(scores.data.argmax(axis=-1) == label)
        H = pyentmax.shannon_entropy(p.astype(float)).mean()
        rows.append((right, p.max(axis=-1).mean(), np.count_nonzero(p) / size, H))
    return np.mean(rows, axis=0)
