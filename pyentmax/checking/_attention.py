"""The check of anybody's attention: cases are data, and so are the known wrong variants."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Table
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from pyentmax.calls.record import Mapping
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import HALF_LIMIT, LIMIT, CallError, Finding, Report, examine
from pyentmax.checking._libraries import (
    LIBRARIES,
    SPACINGS,
    Function,
    Subject,
    blaming,
    dtype_name,
    library_of,
    parameter_names,
    to_numbers,
)  # fmt: skip
from pyentmax.checking._truths import JACOBIANS, truth

NAMES = {
    "mask": ("mask", "attn_mask", "attention_mask"), "causal": ("causal", "is_causal"),
    "scale": ("scale", "softmax_scale", "sm_scale", "scaling"), "bias": ("bias", "attn_bias"),
    "sink": ("sink", "sinks", "s_aux"), "softcap": ("softcap", "logits_soft_cap"),
    "window": ("window", "window_size", "sliding_window"), "offset": ("offset",),
    "lengths": ("lengths", "key_lengths", "key_value_seq_lengths"),
    "cu_seqlens": ("cu_seqlens",), "dropout": ("dropout", "dropout_p", "dropout_rate"),
}  # fmt: skip
ALIGNMENTS = ("bottom-right", "top-left")
N_DROPOUTS, DEVIATIONS = 200, 6.0
Case = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionReport(Report):
    """What holds of an attention; as `MappingReport`, with

    Attributes
    ----------
    causal : str
        Where its causal mask is aligned if there are more keys than queries, or fewer:
        ``"bottom-right"``, ``"top-left"``, or ``""`` if it has none.
    distances : dict
        Name of a known wrong variant → by how many tolerances it is off, in the coarsest float type
        that was tried: how far the inputs tell it from the right one.
    """

    causal: str = ""
    distances: Table[str, float] = field(default_factory=dict)


# --- the reference --------------------------------------------------------------------------------
def reference(
    record: Mapping, values: Sequence[Any], case: Case, gradients: bool = False
) -> tuple[Array, ...]:
    """Output, its gradients in query, key and value for g if asked for, and the largest score."""
    q, k, v, g = (case[name] for name in ("query", "key", "value", "g"))
    (t, s), groups = (q.shape[-2], k.shape[-2]), 1
    if q.ndim > 2:
        groups = q.shape[-3] // k.shape[-3]
        heads = np.arange(q.shape[-3])
        heads = heads % k.shape[-3] if case.get("tiled") else heads // groups
        k, v = k[..., heads, :, :], v[..., heads, :, :]
    scale = case.get("scale", q.shape[-1] ** -0.5)
    see, late = visible(case, t, s), case.get("late", False)
    k, v = (np.where(np.isnan(x), 0, x) for x in (k, v))
    scores, slope, cap = scale * q @ np.swapaxes(k, -1, -2), 1.0, case.get("softcap")
    bias, first = case.get("bias", 0), case.get("bias_first", False)
    scores = scores + bias if first else scores
    if cap:
        bent = np.tanh(scores / cap)
        scores, slope = cap * bent, 1 - bent**2
    scores = scores if first else scores + bias
    largest = np.max(np.abs(scores), initial=0)
    scores = scores if late else np.where(see, scores, -np.inf)
    rows = scores
    if case.get("sink") is not None:
        sink = np.reshape(case["sink"], (-1, 1, 1)) if q.ndim > 2 else case["sink"]
        rows = np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:-1], 1))], axis=-1)
    record = case.get("mapping", record)
    axis = case.get("axis", -1)
    p = record.forward(rows, *values[: len(record.parameters)], axis=axis)
    p = np.where(np.isfinite(rows), p, 0)
    if case.get("mean"):
        p = np.where(see.any(-1, keepdims=True), p, 1 / s)
    weights = np.where(see, p[..., :s], 0) if late else p[..., :s]
    out = weights @ v
    if not gradients:
        return (out, largest)
    towards = np.zeros_like(p)
    towards[..., :s] = g @ np.swapaxes(v, -1, -2)
    known = JACOBIANS.get(record.name)
    jacobian = known(rows) if known else record.jacobian(p, *values[: len(record.parameters)])
    at_scores = np.einsum("...i,...ij->...j", towards, np.nan_to_num(jacobian))[..., :s] * slope
    shape = (*k.shape[:-3], -1, groups)
    at_k, at_v = scale * np.swapaxes(at_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ g
    if groups > 1:
        at_k, at_v = (x.reshape(*shape, *x.shape[-2:]).sum(-3) for x in (at_k, at_v))
    return out, scale * at_scores @ k, at_k, at_v, largest


def visible(case: Case, t: int, s: int) -> Array:
    """Which keys each query sees."""
    i, j = np.indices((t, s))
    default = 0 if case.get("alignment") == "top-left" else s - t
    i = i + case.get("offset", default) + case.get("later", 0)
    see = np.full((t, s), True)
    if case.get("causal"):
        see = see & (j <= i)
    if case.get("window"):
        see = see & (j > i - case["window"])
    if "mask" in case:
        see = see & (case["mask"] if case["mask"].dtype == bool else case["mask"] == 0)
    if "cu_seqlens" in case:
        of = np.searchsorted(case["cu_seqlens"], np.arange(s), side="right")
        see = see & (of[:t, None] == of)
    if "lengths" in case:
        see = see & (j < np.reshape(case["lengths"], (-1, 1, 1, 1)))
    return see


# --- wrong variants: what changes in a case, and the cure -----------------------------------------
def _without(*names: str) -> Callable[[Case], Case]:
    return lambda case: {name: x for name, x in case.items() if name not in names}


def _with(**changes: Any) -> Callable[[Case], Case]:
    return lambda case: {**case, **{
        name: x(case) if callable(x) else x for name, x in changes.items()}}  # fmt: skip


def _if(name: str, **changes: Any) -> Callable[[Case], Case]:
    return lambda case: _with(**changes)(case) if name in case else case


def _default(case: Case) -> float:
    return float(case.get("scale", case["query"].shape[-1] ** -0.5))


VARIANTS: dict[str, tuple[Callable[[Case], Case], str]] = {
    "scores not scaled": (_with(scale=1.0), "multiply by 1/√d, or by scale= if it is given"),
    "scale ignored": (_without("scale"), "use the scale that is given in place of 1/√d"),
    "scaled by 1/d": (
        lambda c: c if "scale" in c else {**c, "scale": 1 / c["query"].shape[-1]},
        "the scale is 1/√d"),
    "scaled twice": (_with(scale=lambda c: _default(c) ** 2), "scale query or scores, not both"),
    "rows and columns confused": (_with(axis=-2), "the mapping goes along the keys, axis=-1"),
    "heads tiled": (_with(tiled=True), "neighbours share a head: repeat each, h // (H / H_kv)"),
    "causal ignored": (_without("causal", "window"), "a query sees no later key"),
    "causal aligned at the other corner": (
        _if("causal", alignment=lambda c: ALIGNMENTS[c.get("alignment") != "top-left"]),
        "with T ≠ S say to which corner the mask belongs"),
    "own key hidden": (_if("causal", later=-1), "a query sees its own key: j ≤ i"),
    "next key seen": (_if("causal", later=1), "a query sees no later key: j ≤ i, not j ≤ i + 1"),
    "offset ignored": (_without("offset"), "query i stands at position i + offset"),
    "window ignored": (_without("window"), "a query sees the last w keys, its own with them"),
    "window too wide": (_if("window", window=lambda c: c["window"] + 1), "w keys, not w + 1"),
    "window too narrow": (_if("window", window=lambda c: c["window"] - 1), "w keys, not w − 1"),
    "mask ignored": (_without("mask"), "hide what the mask hides"),
    "mask inverted": (
        _if("mask", mask=lambda c: ~c["mask"] if c["mask"].dtype == bool else c["mask"]),
        "True means: take part"),
    "masked after the mapping": (_with(late=True), "mask the scores, not the weights"),
    "mean of all values in rows that see nothing": (_with(mean=True), "such rows give zeros"),
    "sink ignored": (_without("sink"), "the sink is one more score, with no value behind it"),
    "softcap ignored": (_without("softcap"), "scores are cap · tanh(scores / cap)"),
    "softcap after the bias": (_if("softcap", bias_first=True), "cap, then add the bias"),
    "bias ignored": (_without("bias"), "add the bias to the scores"),
    "bias scaled": (_if("bias", bias=lambda c: c["bias"] * _default(c)), "add the bias last"),
    "lengths ignored": (_without("lengths"), "keys from the length on are padding"),
    "sequences mixed": (_without("cu_seqlens"), "a query sees keys of its own sequence alone"),
}  # fmt: skip


# --- the function ---------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class AttentionClaim(Subject):
    """An attention, the mapping that it claims to use, and a float type."""

    fn: Function
    own_vjp: Function | None
    record: Mapping
    parameters: dict[str, Any]
    names: dict[str, str]  # option → fn's name of it
    library: str
    rank: int
    wider: int  # by how much values are wider than keys
    alignment: str = ALIGNMENTS[0]
    dtype: str = "float32"
    seen: list[tuple[Case, Array]] = field(default_factory=list)

    def array(self, x: Any) -> Any:
        """An array of fn's library: of floats in the float type."""
        kind = {"b": "bool", "i": "int32"}.get(np.asarray(x).dtype.kind, self.dtype)
        return LIBRARIES[self.library]().array(np.asarray(x), kind)

    def options(self, case: Case) -> dict[str, Any]:
        """The keywords of a case, as fn names them; a KeyError if it has none of that name."""
        own = parameter_names(self.fn) or ()
        given = {name: case[name] for name in NAMES if name in case}
        return {
            self.names[name]: self.array(x) if isinstance(x, np.ndarray) else x
            for name, x in given.items()
        } | {name: x for name, x in self.parameters.items() if name in own}

    def __call__(self, case: Case) -> Array:
        """What fn gives."""
        query = case["query"]
        with blaming(query, case["given"]):
            arrays = [self.array(case[name]) for name in ("query", "key", "value")]
            out = to_numbers(self.fn(*arrays, **self.options(case)))
            if out.shape != (*query.shape[:-1], case["value"].shape[-1]):
                raise ValueError(f"expected queries of values, got shape {out.shape}")
            return out

    def gradients(self, case: Case) -> list[Array] | None:
        """Those in query, key and value, for g; None if there is no way to get them."""
        vjp = LIBRARIES[self.library]().vjp
        with blaming(case["query"], case["given"]):
            arrays = [self.array(case[name]) for name in ("query", "key", "value")]
            if self.own_vjp is not None:
                return [to_numbers(x) for x in self.own_vjp(
                    *arrays, self.array(case["g"]), **self.options(case))]  # fmt: skip
            if vjp is None:
                return None

            def changed(x: Any, at: int) -> Any:
                new = [*arrays[:at], x, *arrays[at + 1 :]]
                return self.fn(*new, **self.options(case))

            return [
                to_numbers(vjp(partial(changed, at=at), x, case["g"]))
                for at, x in enumerate([self.array(x) for x in arrays_of(case)])
            ]

    def exact(self, case: Case, gradients: bool = False) -> tuple[Array, ...]:
        """The right output, gradients if asked for, and the largest score."""
        case = {"alignment": self.alignment, **case}
        return reference(self.record, [*self.parameters.values()], case, gradients)

    def allowed(self, case: Case, largest: Any, scale: float = 1.0) -> float:
        """What an output may be off by: rounding of the scores, moved to the values."""
        size = float(np.nanmax(np.abs(case["value"]))) * scale
        return self.epsilon * size * (1 + float(largest)) / 4

    def case(self, t: int = 3, s: int = 5, d: int = 4, heads: int = 2, kv: int = 0,
             spread: float = 1.0, **options: Any) -> Case | None:  # fmt: skip
        """Random arrays and options in words made arrays; None if fn's arrays have no heads."""
        if (kv and self.rank < 3) or not {*options} - {"nan"} <= {*self.names}:
            return None
        rng = np.random.default_rng(0)
        words = [
            f"T = {t}, S = {s}",
            *(f"{kv} of {heads} heads have keys" for _ in range(bool(kv))),
        ]
        given = ", ".join([*words, *(f"{name} = {x}" for name, x in options.items())])
        batch, heads = ((), (heads,), (2, heads))[self.rank - 2], heads
        keys = (*batch[:-1], kv) if kv else batch

        def draw(*shape: int, size: float = 1.0) -> Array:
            return to_numbers(self.array(size * rng.standard_normal(shape)))

        case: Case = {
            "query": draw(*batch, t, d, size=spread), "key": draw(*keys, s, d),
            "value": draw(*keys, s, d + self.wider), "g": draw(*batch, t, d + self.wider),
            "given": given, **options,
        }  # fmt: skip
        kind, keep = case.get("mask"), np.array(rng.random((*batch, t, s)) < 0.6)
        keep[..., 0] = True
        if kind == "empty":
            keep[..., 1, :] = False
        if kind:
            case["mask"] = np.where(keep, 0.0, -np.inf) if kind == "additive" else keep
        if case.pop("nan", False):
            hidden = np.array(~keep.reshape(-1, t, s).any((0, 1)))
            hidden[-1], keep[..., -1] = True, False
            case["key"][..., hidden, :] = case["value"][..., hidden, :] = np.nan
        if "bias" in case:
            case["bias"] = draw(*batch, t, s)
        if "sink" in case:
            case["sink"] = draw(heads) if batch else float(draw())
        for name in ("lengths", "cu_seqlens"):
            case |= {name: np.array(case[name])} if name in case else {}
        return case


def arrays_of(case: Case) -> list[Array]:
    """Query, key and value."""
    return [case["query"], case["key"], case["value"]]


# --- the properties: a name, what it says, what of it are edges, and the cases --------------------
CASES: dict[str, tuple[str, str, list[Case]]] = {
    "output": ("The output is mapping(scale · q kᵀ) v.", "", [
        {"t": 1, "s": 1}, {"t": 2, "s": 2}, {}, {"t": 5, "s": 3}, {"t": 4, "s": 4, "spread": 4.0}]),
    "long rows": ("Rows of 1200 keys with nearly equal scores.", "", [
        {"t": 2, "s": 1200, "spread": 1e-3}, {"t": 2, "s": 1200}]),
    "large scores": ("Scores of some thousands.", "all", [{"spread": 1e3}]),
    "grouped heads": ("Neighbouring query heads share a head of keys.", "", [
        {"heads": 4, "kv": 2}, {"heads": 6, "kv": 2}, {"heads": 3, "kv": 1}]),
    "scale": ("``scale`` takes the place of 1/√d.", "", [{"scale": 0.3}, {"scale": 2.0}]),
    "boolean masks": ("Keys where the mask is False are not seen.", "", [{"mask": "boolean"}]),
    "additive masks": ("Keys where the mask is −∞ are not seen.", "", [{"mask": "additive"}]),
    "rows that see nothing": ("They give zeros, and leave others alone.", "all", [
        {"mask": "empty"}, {"t": 6, "s": 4, "causal": True}]),
    "causal, T = S": ("A query sees no later key.", "", [{"t": 4, "s": 4, "causal": True}]),
    "causal, T < S": ("The mask is aligned as the report says.", "", [{"causal": True}]),
    "causal, T > S": ("The mask is aligned as the report says.", "", [
        {"t": 6, "s": 4, "causal": True}]),
    "offsets": ("Query i stands at position i + offset.", "", [
        {"causal": True, "offset": o} for o in (0, 1, 2)]),
    "sliding windows": ("A query sees the last w keys, its own with them.", "", [
        {"t": 6, "s": 6, "causal": True, "window": w} for w in (2, 3)]),
    "sinks": ("One more score per head takes weight, and has no value.", "", [{"sink": "drawn"}]),
    "softcap": ("Scores are cap · tanh(scores / cap).", "", [{"softcap": 0.7, "spread": 3.0}]),
    "bias": ("The bias is added to the scaled scores.", "", [{"bias": "drawn"}]),
    "bias and softcap": ("Scores are capped, then biased.", "", [
        {"bias": "drawn", "softcap": 0.7, "spread": 3.0}]),
    "key lengths": ("Keys from a length on are not seen.", "", [{"lengths": (2, 5)}]),
    "packed sequences": ("A query sees keys of its own sequence alone.", "", [
        {"t": 5, "s": 5, "cu_seqlens": (0, 2, 5)}]),
    "NaN in what is masked": ("Keys and values that are not seen may be NaN.", "all", [
        {"mask": "boolean", "nan": True}]),
    "half types": ("float16 and bfloat16 are as exact as they can be.", "all", [
        {}, {"t": 5, "s": 40}, {"heads": 4, "kv": 2}, {"t": 4, "s": 4, "causal": True},
        {"mask": "boolean"}, {"scale": 0.3}]),
}  # fmt: skip
GRADED: list[Case] = [
    {}, {"t": 4, "s": 4}, {"heads": 4, "kv": 2}, {"scale": 0.3}, {"mask": "boolean"},
    {"t": 4, "s": 4, "causal": True}, {"sink": "drawn"}, {"softcap": 0.7}, {"bias": "drawn"},
]  # fmt: skip


class Outputs:
    """The property that the outputs of some cases are right."""

    def __init__(self, name: str, says: str, cases: list[Case]) -> None:
        self.__name__, self.__doc__, self.cases = name, says, cases

    def __call__(self, claim: AttentionClaim) -> Iterator[Finding]:
        for case in filter(None, (claim.case(**one) for one in self.cases)):
            try:
                out = claim(case)
            except CallError:
                if self.__name__ == "output":
                    raise
                continue  # not supported
            right = claim.exact(case, gradients=True)
            claim.seen.append((case, out))
            nothing, nan = (right[0] == 0).all(-1, keepdims=True), np.isnan(out)
            if self.__name__ == "rows that see nothing":
                nothing = nothing & nan.all(-1, keepdims=True)  # NaN will do
            out = np.where(nothing, 0, out)
            yield _compare(out, right[0], claim.allowed(case, right[-1]), case)


def _compare(seen: Array, right: Array, allowed: float, case: Case, of: str = "") -> Finding:
    error = np.max(np.abs(seen - right), initial=0) / allowed
    units = np.inf if np.isnan(error) else float(error)
    return Finding(np.zeros(1), seen, right, units, given=of + case["given"])


def gradients(claim: AttentionClaim) -> Iterator[Finding]:
    """The gradients in query, key and value are right."""
    for case in filter(None, (claim.case(**one) for one in GRADED)):
        try:
            seen = claim.gradients(case) if claim(case).size else None
        except CallError:
            continue  # not supported
        right = claim.exact(case, gradients=True)
        for name, one, exact in zip(
            ("query", "key", "value"), seen or (), right[1:4], strict=False
        ):
            size = max(float(np.max(np.abs(x))) for x in (*arrays_of(case), case["g"])) ** 2
            yield _compare(one, exact, claim.allowed(case, right[-1], size), case, f"d{name}, ")


def dropout(claim: AttentionClaim) -> Iterator[Finding]:
    """The mean over many calls with dropout is the output without."""
    case = claim.case(dropout=0.5)
    if case is None:
        return
    state = np.random.get_state()  # noqa: NPY002  # fn may draw from it
    with ExitStack() as stack:
        if claim.library == "torch":
            stack.enter_context(sys.modules["torch"].random.fork_rng(devices=[]))
        try:
            outputs = np.stack([claim(case) for _ in range(N_DROPOUTS)])
        except CallError:
            return
        finally:
            np.random.set_state(state)  # noqa: NPY002
    right = claim.exact(case)
    deviation = np.std(outputs, axis=0) / np.sqrt(N_DROPOUTS) + 1e-6
    off = np.max(np.abs(outputs.mean(0) - right[0]) / deviation) / DEVIATIONS
    yield _compare(outputs.mean(0), right[0], 1.0, case)._replace(units=float(off) * LIMIT)


def scores_left_as_they_were(claim: AttentionClaim) -> Iterator[Finding]:
    """The function does not write into its arrays."""
    case = claim.case()
    assert case is not None
    arrays = [claim.array(x) for x in arrays_of(case)]
    with blaming(case["query"], case["given"]):
        out = claim.fn(*arrays, **claim.options(case))
    same = all((to_numbers(a) == x).all() for a, x in zip(arrays, arrays_of(case), strict=True))
    text = f"{dtype_name(out)}, arrays {'as they were' if same else 'changed'}"
    right = f"{claim.dtype}, arrays as they were"
    yield Finding(np.zeros(1), text, right, 0.0 if text == right else np.inf, given="T = 3, S = 5")


PROPERTIES: dict[Any, str] = {
    **{Outputs(name, doc, cases): edges for name, (doc, edges, cases) in CASES.items()},
    dropout: "", gradients: "errors", scores_left_as_they_were: "all",
}  # fmt: skip


def check_attention(
    fn: Callable[..., Any],
    mapping: str | Mapping = "softmax",
    *,
    vjp: Callable[..., Any] | None = None,
    names: dict[str, str] | None = None,
    causal: str | None = None,
    dtypes: Sequence[str] | None = None,
    strict: bool = False,
    **parameters: Any,
) -> AttentionReport:
    """Check anybody's attention, in any array library.

    Outputs and gradients are compared with a reference in double precision, and the known wrong
    variants of the reference are run through the same inputs: the report says how far each is away,
    and which one the function agrees with. The function is called at most 1,000 times.

    Parameters
    ----------
    fn : callable
        ``fn(query, key, value, …)`` of arrays (…, T, d), (…, S, d) and (…, S, e): four axes, three
        or two, whichever it takes first. Its keywords are tried under these names and their usual
        others: ``mask`` (True takes part, or additive), ``causal``, ``scale``, ``bias``, ``sink``
        (a score per head), ``softcap``, ``window``, ``offset``, ``lengths`` (of keys),
        ``cu_seqlens`` and ``dropout``. What raises an error is not supported, which is no fault.
    mapping : str or Mapping
        What makes weights of scores; as in `check_mapping`.
    vjp : callable, optional
        ``vjp(query, key, value, g, …)`` → their gradients. If not given, PyTorch, JAX and
        TensorFlow differentiate fn; for other libraries they are not tried.
    names : dict, optional
        fn's own names of keywords, such as ``{"mask": "keep"}``; needed where fn has no signature.
    causal : {"bottom-right", "top-left"}, optional
        Where the causal mask should be aligned if T ≠ S. If not given, either is right.
    dtypes, strict, **parameters : as in `check_mapping`

    Returns
    -------
    AttentionReport

    Examples
    --------
    >>> import numpy as np
    >>> import pyentmax as pe
    >>> def attention(query, key, value, causal=False):
    ...     scores = query @ np.swapaxes(key, -1, -2)  # / √d is missing
    ...     later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    ...     return pe.softmax(np.where(causal & later, -np.inf, scores)) @ value
    >>> report = check_attention(attention)
    >>> report.verdict, report.causal, report.causes
    ('wrong', 'top-left', ('scores not scaled: multiply by 1/√d, or by scale= if it is given',))
    """
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {fn!r:.60}")
    if causal not in (None, *ALIGNMENTS):
        raise ValueError(f'causal must be "bottom-right", "top-left" or None, got {causal!r}')
    record = truth(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        claim = _claim(fn, vjp, record, parameters, names or {})
        seen = _alignment(claim)
        claims = [replace(claim, alignment=causal or seen or claim.alignment, dtype=dtype, seen=[])
                  for dtype in SPACINGS]  # fmt: skip
        claims = [one for one in claims if (dtypes is None or one.dtype in dtypes) and _fits(one)]
        if not claims:
            raise ValueError(f"dtypes must have one that fn takes, got {dtypes}")
        results = examine(PROPERTIES, claims)
        bad = {one.name for one in results if one.grade not in ("right", "not applicable")}
        likely = tuple(
            f"{name}: {cure}" for name, (change, cure) in VARIANTS.items()
            if bad & {*CASES} and _agrees(claims[0], change)
        )[:1]  # fmt: skip
        distances = _distances(claims[-1])
    notes = (f"the causal mask is aligned {seen}",) if seen else ()
    name = ", ".join([record.name, *(f"{key} = {value}" for key, value in parameters.items())])
    return AttentionReport(
        f"attention of {name}", tuple(one.dtype for one in claims), results, strict, likely, notes,
        seen, distances,
    )  # fmt: skip


def _claim(
    fn: Function, vjp: Function | None, record: Mapping, parameters: dict[str, Any], names: Case
) -> AttentionClaim:
    """The claim with the first library and rank that fn takes."""
    own = parameter_names(fn) or set()
    errors: dict[str, Exception] = {}
    usual = {option: name for option, all in NAMES.items() for name in all if name in own}
    for library in (name for name in LIBRARIES if name in sys.modules):
        for rank, wider in product((4, 3, 2), (1, 0)):
            claim = AttentionClaim(fn, vjp, record, parameters, usual | names, library, rank, wider)
            case = claim.case()
            assert case is not None
            try:
                claim(case)
                out = claim.fn(*(claim.array(x) for x in arrays_of(case)), **claim.options(case))
            except Exception as error:  # libraries have errors of their own
                errors.setdefault(library, error)
                continue
            return replace(claim, library=library_of(out))
    each = "; ".join(f"{key}: {error}" for key, error in errors.items())
    raise TypeError(f"fn must map query, key and value (…, T, d) to (…, T, e): {each}")


def _fits(claim: AttentionClaim) -> bool:
    try:
        case = claim.case(t=2, s=2)
        return case is not None and claim(case).size > 0 and dtype_name(
            claim.array(case["query"])) == claim.dtype  # fmt: skip
    except Exception:  # the library has no such type, or fn does not take it
        return False


def _alignment(claim: AttentionClaim) -> str:
    """That of fn's causal mask, by what it gives for T < S, or T > S; empty if it has none."""
    for shape in ({"t": 3, "s": 5}, {"t": 6, "s": 4}):
        case = claim.case(causal=True, **shape)
        try:
            out = claim(case) if case else None
        except CallError:
            continue
        if case and out is not None:
            off = {one: float(np.max(np.abs(np.nan_to_num(out) - replace(
                claim, alignment=one).exact(case)[0]))) for one in ALIGNMENTS}  # fmt: skip
            return min(off, key=lambda one: off[one])
    return ""


def _agrees(claim: AttentionClaim, change: Callable[[Case], Case]) -> bool:
    """Whether fn gives what a variant gives, in all cases that were tried, for one alignment."""
    limit = HALF_LIMIT if claim.half else LIMIT
    for alignment in ALIGNMENTS:
        for case, out in claim.seen:
            if np.isnan(case["key"]).any() and np.isnan(out).any():
                continue  # a fault of its own, which hides others
            right = claim.exact(change({**case, "alignment": alignment}))
            both = np.isnan(out) & (right[0] == 0)
            allowed = limit * claim.allowed(case, right[-1])
            if not np.all((np.abs(out - right[0]) <= allowed) | both):
                break
        else:
            return bool(claim.seen)
    return False


def _distances(claim: AttentionClaim) -> dict[str, float]:
    """Variant → its largest error over the cases, in tolerances."""
    limit = HALF_LIMIT if claim.half else LIMIT
    distances: dict[str, float] = {}
    for name, (change, _) in VARIANTS.items():
        for case, _ in claim.seen:
            right = claim.exact(case)
            variant = claim.exact(change({"alignment": claim.alignment, **case}))
            off = np.max(np.abs(variant[0] - right[0])) / (limit * claim.allowed(case, right[-1]))
            if off > distances.get(name, 0):
                distances[name] = float(off)
    return distances
