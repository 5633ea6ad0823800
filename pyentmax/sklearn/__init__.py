"""A linear classifier with sparse probabilities, and prediction sets, for scikit-learn.

from pyentmax.sklearn import ConformalClassifier, FenchelYoungClassifier

classifier = FenchelYoungClassifier(loss="entmax15").fit(X, y)
p = classifier.predict_proba(X)  # most entries are exactly zero
sets = ConformalClassifier(pipeline).fit(X, y).calibrate(more_X, more_y).predict_set(new_X)
"""

from __future__ import annotations

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"pyentmax.sklearn needs scikit-learn, which cannot be imported ({error}): "
        "pip install 'pyentmax[sklearn]'"
    ) from error

from pyentmax.sklearn.classifier import FenchelYoungClassifier
from pyentmax.sklearn.conformal import ConformalClassifier

__all__ = ["ConformalClassifier", "FenchelYoungClassifier"]
