"""What makes a run itself, so that nothing else is taken for its continuation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pyentmax.data import Pair


def fingerprint(pairs: Sequence[Pair]) -> str:
    """A number for a data set, the same only for the same examples in the same order."""
    digest = hashlib.sha256()
    for source, target in pairs:
        digest.update(json.dumps([list(map(int, source)), list(map(int, target))]).encode())
    return f"{len(pairs)} examples, {digest.hexdigest()[:16]}"


def differences(then: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between two identities, in words."""
    found = []
    for key in now:
        a, b = then.get(key), now[key]
        if isinstance(a, dict) and isinstance(b, dict):
            inner = sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))
            found += [f"{k} was {a.get(k)}, is {b.get(k)}" for k in inner]
        elif a != b:
            short = all(isinstance(x, (str, int, float)) and len(str(x)) < 60 for x in (a, b))
            found.append(f"{key}: was {a}, is {b}" if short else f"{key}: not the same")
    return "; ".join(found[:3]) + (" …" if len(found) > 3 else "")
