"""scikit-learn: a pipeline whose classifier rules classes out, next to LogisticRegression.

    pip install 'pyentmax[sklearn]' matplotlib
    python examples/sklearn_pipeline.py          # some ten seconds; saves sklearn_pipeline.png

On the wines of three growers: accuracies by cross-validation, a grid search over mappings and C,
and a picture of the probabilities over the plane of the first two principal components.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import to_rgb
    from sklearn.datasets import load_wine
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
except ImportError as error:
    raise SystemExit(f"{error}: pip install 'pyentmax[sklearn]' matplotlib") from None

from pyentmax.sklearn import FenchelYoungClassifier

COLOURS = np.array([to_rgb(name) for name in ("#0072B2", "#E69F00", "#009E73")])
MODELS = {
    "LogisticRegression": LogisticRegression(),
    "1.5-entmax": FenchelYoungClassifier("entmax15"),
    "sparsemax": FenchelYoungClassifier("sparsemax"),
    "one-vs-all": FenchelYoungClassifier("one-vs-all"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=Path("sklearn_pipeline.png"))
    parser.add_argument("--folds", type=int, default=5, help="of the cross-validations")
    options = parser.parse_args(arguments)
    X, y = load_wine(return_X_y=True)

    print(f"{'classifier':20} {'right':>6}  classes possible")
    for name, model in MODELS.items():
        pipeline = make_pipeline(StandardScaler(), model)
        p = cross_val_predict(pipeline, X, y, cv=options.folds, method="predict_proba")
        right = (p.argmax(axis=1) == y).mean()
        print(
            f"{name:20} {right:6.1%}  {(p > 0).sum(axis=1).mean():.2f} of {p.shape[1]}", flush=True
        )

    grid = {
        "fenchelyoungclassifier__loss": ["softmax", 1.25, "entmax15", "sparsemax"],
        "fenchelyoungclassifier__C": [0.1, 1, 10],
    }
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FenchelYoungClassifier()), grid, cv=options.folds
    )
    search.fit(X, y)
    chosen = {name.partition("__")[2]: value for name, value in search.best_params_.items()}
    print(f"grid search: {chosen}, {search.best_score_:.1%} right")

    draw(X, y).savefig(options.picture, dpi=150)
    print(f"saved {options.picture}")


def draw(X: np.ndarray, y: np.ndarray) -> plt.Figure:
    """Where each classifier finds which grower possible, on two principal components."""
    plane = make_pipeline(StandardScaler(), PCA(2))
    points = plane.fit_transform(X)
    low, high = points.min(axis=0) - 1, points.max(axis=0) + 1
    across, up = np.meshgrid(*(np.linspace(a, b, 300) for a, b in zip(low, high, strict=True)))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    figure, axes = plt.subplots(1, len(MODELS), figsize=(11, 3.2), layout="constrained")
    for axis, (name, model) in zip(axes, MODELS.items(), strict=True):
        p = model.fit(points, y).predict_proba(grid)
        colour = 1 - 0.6 * (1 - p @ COLOURS)
        axis.imshow(
            colour.reshape(*across.shape, 3),
            origin="lower",
            extent=(low[0], high[0], low[1], high[1]),
            aspect="auto",
        )
        possible = (p > 0).sum(axis=1).reshape(across.shape)
        if possible.min() < possible.max():
            axis.contour(across, up, possible, levels=[1.5, 2.5], colors="#1F2933", linewidths=0.8)
        axis.scatter(*points.T, c=COLOURS[y], s=9, edgecolors="white", linewidths=0.4)
        share = (possible == 1).mean()
        axis.set(title=name, xlabel=f"one class possible on {share:.0%}", xticks=[], yticks=[])
    return figure


if __name__ == "__main__":
    main()
