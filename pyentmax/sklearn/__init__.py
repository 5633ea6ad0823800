"""A linear classifier with sparse probabilities, for scikit-learn.

from pyentmax.sklearn import FenchelYoungClassifier

classifier = FenchelYoungClassifier(loss="entmax15").fit(X, y)
p = classifier.predict_proba(X)  # most entries are exactly zero
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

__all__ = ["FenchelYoungClassifier"]
