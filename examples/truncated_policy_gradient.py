"""Policy gradients from truncated draws: with the log-probability of the draw, and a wrong one.

    pip install pyentmax matplotlib
    python examples/truncated_policy_gradient.py    # seconds; saves truncated_policy_gradient.png

A policy over twelve tokens, whose sampler keeps p ≥ 0.2 max p. Every token has the same reward, so
the expected gradient is 0. A trainer that takes log p from all of softmax gets another one: it
raises what was kept, whatever the reward. On the set that was kept, there is no bias; and a
1.5-entmax policy has no truncation to forget.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

try:
    import matplotlib.pyplot as plt
except ImportError as error:
    raise SystemExit(f"{error}: pip install matplotlib") from None

import pyentmax as pe

RATIO, DRAWS = 0.2, 64


def naive(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the sampler, and ∇ log p of each token: of softmax without truncation."""
    p = pe.softmax(z, mask=pe.keep.min_p(z, RATIO))
    return p, np.eye(len(z)) - pe.softmax(z)


def on_the_set(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same, with log p of softmax on the set that the sampler kept."""
    p = pe.softmax(z, mask=pe.keep.min_p(z, RATIO))
    return p, np.eye(len(z)) - p


def sparse(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for 1.5-entmax: ∂ log p_y/∂z_j = (δ_yj − s_j/Σs)/√p_y, s = √p."""
    p = pe.entmax15(z)
    s = np.sqrt(p)
    return p, (np.eye(len(z)) - s / s.sum()) / np.where(s > 0, s, np.inf)[:, None]


POLICIES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "softmax, min-p, log p of all of softmax": naive,
    "softmax, min-p, log p on the set": on_the_set,
    "1.5-entmax": sparse,
}
COLOURS = ("#D55E00", "#0072B2", "#009E73")


def estimates(
    z: np.ndarray, policy: Callable[..., tuple[np.ndarray, np.ndarray]], rng: np.random.Generator
) -> np.ndarray:
    """An estimate of the gradient of the expected reward, 1 for every token, from some draws."""
    p, log_gradient = policy(z)
    counts = rng.multinomial(DRAWS, p / p.sum())
    result: np.ndarray = counts @ log_gradient / DRAWS
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=Path("truncated_policy_gradient.png"))
    parser.add_argument("--updates", type=int, default=600)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    start = np.linspace(1.5, -1.5, 12)

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for (name, policy), colour in zip(POLICIES.items(), COLOURS, strict=True):
        many = np.array([estimates(start, policy, rng) for _ in range(2000)])
        mean, error = many.mean(axis=0), many.std(axis=0) / len(many) ** 0.5
        worst = np.abs(mean).argmax()

        print(f"{name:40} bias {mean[worst]:+.4f} ± {error[worst]:.4f}", flush=True)
        left.errorbar(np.arange(12), mean, 4 * error, color=colour, capsize=2, label=name)
        z, entropies = start.copy(), []
        for _ in range(options.updates):
            entropies.append(
                pe.shannon_entropy(pe.entmax15(z) if policy is sparse else pe.softmax(z))
            )
            z = z + 0.5 * estimates(z, policy, rng)
        right.plot(entropies, color=colour)
    left.set(xlabel="token", ylabel="gradient", title="mean of 2,000 estimates; the truth is 0")
    right.set(xlabel="update", ylabel="entropy of the policy", title="equal rewards teach nothing")
    right.set_ylim(0)
    left.legend(frameon=False, fontsize=8)
    figure.savefig(options.picture, dpi=120)
    print(f"saved {options.picture}")


if __name__ == "__main__":
    main()
