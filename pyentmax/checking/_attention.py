"""The check of anybody's attention: cases are data, and so are the known wrong variants."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Table
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking._causes import Cause, likely
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import LIMIT, CallError, Finding, Report, compare, examine, same
from pyentmax.checking._subjects import (
    Subject,
    blaming,
    check_function,
    dtype_name,
    fitting,
    parameter_names,
    quiet,
    to_numbers,
)  # fmt: skip
from pyentmax.checking._truths import JACOBIANS, truth
from pyentmax.engine.calls.record import Mapping

NAMES = {
    "mask": ("mask", "attn_mask", "attention_mask"), "causal": ("causal", "is_causal"),
    "scale": ("scale", "softmax_scale", "sm_scale", "scaling"), "bias": ("bias", "attn_bias"),
    "sink": ("sink", "sinks", "s_aux"), "softcap": ("softcap", "logits_soft_cap"),
    "window": ("window", "window_size", "sliding_window", "local_window_size"),
    "offset": ("offset",), "lengths": ("lengths", "key_lengths", "key_value_seq_lengths"),
    "cu_seqlens": ("cu_seqlens",), "dropout": ("dropout", "dropout_p", "dropout_rate"),
}  # fmt: skip
ALIGNMENTS = ("bottom-right", "top-left")
N_DROPOUTS, DEVIATIONS = 200, 6.0
Case = dict[str, Any]
Findings = Iterator[Finding]


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
    k, v = (np.where(np.isnan(x), 0, x) for x in (k, v))
    scale, see, late = _scale(case), visible(case, t, s), case.get("late", False)
    bias, first = case.get("bias", 0), case.get("bias_first", False)
    scores, slope, cap = scale * q @ np.swapaxes(k, -1, -2) + bias * first, 1.0, case.get("softcap")
    if cap:
        bent = np.tanh(scores / cap)
        scores, slope = cap * bent, 1 - bent**2
    scores = scores + bias * (not first)
    largest = np.max(np.abs(scores), initial=0)
    rows = scores = scores if late else np.where(see, scores, -np.inf)
    if case.get("sink") is not None:
        sink = np.reshape(case["sink"], (-1, 1, 1)) if q.ndim > 2 else case["sink"]
        rows = np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:-1], 1))], axis=-1)
    p = record.forward(rows, *values[: len(record.parameters)], axis=case.get("axis", -1))
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
    at_k, at_v = scale * np.swapaxes(at_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ g
    if groups > 1:
        shape = (*k.shape[:-3], -1, groups)
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


def _scale(case: Case) -> float:
    return float(case.get("scale", case["query"].shape[-1] ** -0.5))


# --- wrong variants: what changes in a case, and the cure -----------------------------------------
def _without(*names: str) -> Callable[[Case], Case]:
    return lambda case: {name: x for name, x in case.items() if name not in names}


def _with(needs: str = "query", **changes: Any) -> Callable[[Case], Case]:
    """Other entries, or functions of the case, if it has an entry of that name."""
    return lambda case: (
        case | {name: x(case) if callable(x) else x for name, x in changes.items() if needs in case}
    )


VARIANTS = (
    Cause("scores not scaled", _with(scale=1.0), "multiply by 1/√d, or by scale= if it is given"),
    Cause("scale ignored", _without("scale"), "use the scale that is given in place of 1/√d"),
    Cause("scaled by 1/d", lambda c: {"scale": 1 / c["query"].shape[-1]} | c, "the scale is 1/√d"),
    Cause("scaled twice", _with(scale=lambda c: _scale(c) ** 2), "scale queries or scores"),
    Cause("rows and columns confused", _with(axis=-2), "the mapping goes along the keys, axis=-1"),
    Cause("heads tiled", _with(tiled=True), "neighbours share a head: repeat it, h // (H / H_kv)"),
    Cause("causal ignored", _without("causal", "window"), "a query sees no later key"),
    Cause("causal aligned at the other corner", _with("causal", alignment=lambda c: ALIGNMENTS[
        c.get("alignment") != "top-left"]), "with T ≠ S say to which corner the mask belongs"),
    Cause("own key hidden", _with("causal", later=-1), "a query sees its own key: j ≤ i"),
    Cause("next key seen", _with("causal", later=1),
          "a query sees no later key: j ≤ i, not j ≤ i + 1"),
    Cause("offset ignored", _without("offset"), "query i stands at position i + offset"),
    Cause("window ignored", _without("window"), "a query sees the last w keys, its own with them"),
    Cause("window too wide", _with("window", window=lambda c: c["window"] + 1),
          "w keys, not w + 1"),
    Cause("window too narrow", _with("window", window=lambda c: c["window"] - 1),
          "w keys, not w − 1"),
    Cause("mask ignored", _without("mask"), "hide what the mask hides"),
    Cause("mask inverted", _with("mask", mask=lambda c: ~c["mask"] if c["mask"].dtype == bool
                                 else c["mask"]), "True means: take part"),
    Cause("masked after the mapping", _with(late=True), "mask the scores, not the weights"),
    Cause("mean of all values in rows that see nothing", _with(mean=True), "such rows give zeros"),
    Cause("sink ignored", _without("sink"), "the sink is one more score, with no value behind it"),
    Cause("softcap ignored", _without("softcap"), "scores are cap · tanh(scores / cap)"),
    Cause("softcap after the bias", _with("softcap", bias_first=True), "cap, then add the bias"),
    Cause("bias ignored", _without("bias"), "add the bias to the scores"),
    Cause("bias scaled", _with("bias", bias=lambda c: c["bias"] * _scale(c)), "add the bias last"),
    Cause("lengths ignored", _without("lengths"), "keys from the length on are padding"),
    Cause("sequences mixed", _without("cu_seqlens"), "a query sees keys of its own sequence alone"),
)  # fmt: skip


# --- the function ---------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionClaim(Subject):
    """An attention, and the mapping that it claims to use."""

    integers = "int32"
    spelled: dict[str, str]  # option → fn's name of it
    rank: int
    wider: int  # by how much values are wider than keys
    pairs: bool = False  # fn takes a window as (left, right)
    alignment: str = ALIGNMENTS[0]
    observed: list[tuple[Case, Array]] = field(default_factory=list)

    def tried(self) -> Any:
        """What fn gives for two queries and keys, and whether it has the shape."""
        case = self.case(t=2, s=2)
        assert case is not None
        self(case)
        return self.fn(*map(self.array, arrays_of(case)), **self.options(case))

    def settled(self, out: Any) -> AttentionClaim:
        """Whether fn takes a window as a pair: its default is one, or a number is an error."""
        case, pair = self.case(t=6, s=6, causal=True, window=2), replace(self, pairs=True)
        if case is None:
            return self
        with suppress(TypeError, ValueError):  # it may have no signature
            parameter = inspect.signature(self.fn).parameters.get(self.spelled["window"])
            if isinstance(getattr(parameter, "default", None), tuple):
                return pair
        for claim in (self, pair):
            with suppress(CallError):
                claim(case)
                return claim
        return self

    def options(self, case: Case) -> dict[str, Any]:
        """The keywords of a case, as fn names them."""
        options = {name: case[name] for name in NAMES if name in case}
        if self.pairs and "window" in options:
            options["window"] = (options["window"] - 1, 0)
        return {
            self.spelled[name]: self.array(x) if isinstance(x, np.ndarray) else x
            for name, x in options.items()
        } | self.passed

    def __call__(self, case: Case) -> Array:
        """What fn gives."""
        query = case["query"]
        with blaming(query, case["given"]):
            out = to_numbers(self.fn(*map(self.array, arrays_of(case)), **self.options(case)))
            if out.shape != (*query.shape[:-1], case["value"].shape[-1]):
                raise ValueError(f"expected queries of values, got shape {out.shape}")
            return out

    def gradients(self, case: Case) -> list[Array]:
        """Those in query, key and value, for g; none if there is no way to get them."""
        with blaming(case["query"], case["given"]):
            arrays, options = [*map(self.array, arrays_of(case))], self.options(case)
            if self.own_vjp is not None:
                own = self.own_vjp(*arrays, self.array(case["g"]), **options)
                return [*map(to_numbers, own)]
            vjp = self.functions.vjp

            def changed(x: Any, at: int) -> Any:
                return self.fn(*arrays[:at], x, *arrays[at + 1 :], **options)

            return [
                to_numbers(vjp(partial(changed, at=at), self.array(x), case["g"]))
                for at, x in enumerate(arrays_of(case)) if vjp
            ]  # fmt: skip

    def exact(self, case: Case, gradients: bool = False) -> tuple[Array, ...]:
        """The right output, gradients if asked for, and the largest score."""
        case = {"alignment": self.alignment, **case}
        return reference(self.record, [*self.parameters.values()], case, gradients)

    def allowed(self, case: Case, largest: Any, scale: float = 1.0) -> float:
        """What an output may be off by: rounding of the scores, moved to the values."""
        size = float(np.nanmax(np.abs(case["value"]))) * scale
        return self.epsilon * size * (1 + float(largest)) / 4

    def tolerated(self, case: Case) -> tuple[Array, float]:
        """The right output, and how far from it an output is still right."""
        out, largest = self.exact(case)
        return out, self.limit * self.allowed(case, largest)

    def case(self, t: int = 3, s: int = 5, d: int = 4, heads: int = 2, kv: int = 0,
             spread: float = 1.0, **options: Any) -> Case | None:  # fmt: skip
        """Random arrays and options in words made arrays; None if fn's arrays have no heads."""
        if (kv and self.rank < 3) or not {*options} - {"nan"} <= {*self.spelled}:
            return None
        rng = np.random.default_rng(0)
        words = [f"T = {t}, S = {s}", *([f"{kv} of {heads} heads have keys"] if kv else ())]
        description = ", ".join([*words, *(f"{name} = {x}" for name, x in options.items())])
        batch = ((), (heads,), (2, heads))[self.rank - 2]
        keys = (*batch[:-1], kv) if kv else batch

        def draw(*shape: int, size: float = 1.0) -> Array:
            return self.rounded(size * rng.standard_normal(shape))

        case: Case = {
            "query": draw(*batch, t, d, size=spread), "key": draw(*keys, s, d),
            "value": draw(*keys, s, d + self.wider), "g": draw(*batch, t, d + self.wider),
            "given": description, **options,
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
        return case | {name: np.array(case[name]) for name in LISTS if name in case}


LISTS = ("lengths", "cu_seqlens")


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

    def __call__(self, claim: AttentionClaim) -> Findings:
        for case in filter(None, (claim.case(**one) for one in self.cases)):
            try:
                out = claim(case)
            except CallError:
                if self.__name__ == "output":
                    raise
                continue  # not supported
            right, largest = claim.exact(case)
            claim.observed.append((case, out))
            nothing = (right == 0).all(-1, keepdims=True)
            if self.__name__ == "rows that see nothing":
                nothing = nothing & np.isnan(out).all(-1, keepdims=True)  # NaN will do
            yield _compare(np.where(nothing, 0, out), right, claim.allowed(case, largest), case)


def _compare(observed: Array, right: Array, allowed: float, case: Case, of: str = "") -> Finding:
    return compare(np.zeros(1), observed, right, allowed, given=of + case["given"])


def gradients(claim: AttentionClaim) -> Findings:
    """The gradients in query, key and value are right."""
    for case in filter(None, (claim.case(**one) for one in GRADED)):
        try:
            observed = claim.gradients(case) if claim(case).size else []
        except CallError:
            continue  # not supported
        right = claim.exact(case, gradients=True)
        size = max(float(np.max(np.abs(x))) for x in (*arrays_of(case), case["g"])) ** 2
        allowed = claim.allowed(case, right[-1], size)
        for name, one, exact in zip(
            ("dquery", "dkey", "dvalue"), observed, right[1:4], strict=False
        ):
            yield _compare(one, exact, allowed, case, f"{name}, ")


def dropout(claim: AttentionClaim) -> Findings:
    """The mean over many calls with dropout is the output without."""
    case = claim.case(dropout=0.5)
    if case is None:
        return
    state = np.random.get_state()  # noqa: NPY002  # fn may draw from it
    with ExitStack() as stack:
        stack.callback(np.random.set_state, state)  # noqa: NPY002
        if claim.library == "torch":
            stack.enter_context(sys.modules["torch"].random.fork_rng(devices=[]))
        try:
            outputs = np.stack([claim(case) for _ in range(N_DROPOUTS)])
        except CallError:
            return
    deviation = np.std(outputs, axis=0) / np.sqrt(N_DROPOUTS) + 1e-6
    yield _compare(outputs.mean(0), claim.exact(case)[0], deviation * DEVIATIONS / LIMIT, case)


def scores_left_as_they_were(claim: AttentionClaim) -> Findings:
    """The function does not write into its arrays."""
    case = claim.case()
    assert case is not None
    arrays = [claim.array(x) for x in arrays_of(case)]
    with blaming(case["query"], case["given"]):
        out = claim.fn(*arrays, **claim.options(case))
    intact = all((to_numbers(a) == x).all() for a, x in zip(arrays, arrays_of(case), strict=True))
    observed = f"{dtype_name(out)}, arrays {'as they were' if intact else 'changed'}"
    yield same(np.zeros(1), observed, f"{claim.dtype}, arrays as they were", case["given"])


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
        (a score per head), ``softcap``, ``window`` (of w keys; as (w − 1, 0) where it is a pair),
        ``offset``, ``lengths`` (of keys), ``cu_seqlens`` and ``dropout``. What raises an error is
        not supported, which is no fault.
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
    check_function(fn)
    if causal not in (None, *ALIGNMENTS):
        raise ValueError(f'causal must be "bottom-right", "top-left" or None, got {causal!r}')
    record = truth(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    own = parameter_names(fn) or set()
    spelled = {option: name for option, all in NAMES.items() for name in all if name in own}

    def trials(library: str) -> Iterator[AttentionClaim]:
        for rank, wider in product((4, 3, 2), (1, 0)):
            yield AttentionClaim(
                fn=fn, own_vjp=vjp, record=record, parameters=parameters, library=library,
                spelled=spelled | (names or {}), rank=rank, wider=wider)  # fmt: skip

    with quiet():
        claims = fitting(trials, dtypes, "query, key and value (…, T, d) to (…, T, e)")
        aligned = _alignment(claims[0])
        claims = [replace(one, alignment=causal or aligned or ALIGNMENTS[0], observed=[])
                  for one in claims]  # fmt: skip
        results = examine(PROPERTIES, claims)
        bad = {one.name for one in results if one.grade not in ("right", "not applicable")}
        cause = _cause(claims[0], bad & {*CASES})
        distances = _distances(claims[-1])
    notes: tuple[str, ...] = (f"the causal mask is aligned {aligned}",) if aligned else ()
    if claims[0].pairs:
        notes += ("a window of w keys was passed as (w − 1, 0)",)
    return AttentionReport(
        f"attention of {claims[0].title}", tuple(one.dtype for one in claims), results, strict,
        cause, notes, aligned, distances,
    )  # fmt: skip


def _alignment(claim: AttentionClaim) -> str:
    """That of fn's causal mask, by what it gives for T < S, or T > S; empty if it has none."""
    for shape in ({"t": 3, "s": 5}, {"t": 6, "s": 4}):
        case = claim.case(causal=True, **shape)
        try:
            out = np.nan_to_num(claim(case)) if case else None
        except CallError:
            continue
        if case and out is not None:
            right = {one: claim.exact({**case, "alignment": one})[0] for one in ALIGNMENTS}
            return min(ALIGNMENTS, key=lambda one: float(np.max(np.abs(out - right[one]))))
    return ""


def _cause(claim: AttentionClaim, bad: set[str]) -> tuple[str, ...]:
    """The variant that fn agrees with in all cases that were tried, for one alignment.

    NaN that reaches an output is a fault of its own, and is not compared.
    """
    entries = [one._replace(variant=lambda case, change=one.variant: claim.tolerated(change(case)))
               for one in VARIANTS]  # fmt: skip
    tried = [(case, out) for case, out in claim.observed
             if not (np.isnan(case["key"]).any() and np.isnan(out).any())]  # fmt: skip
    other = ALIGNMENTS[claim.alignment == ALIGNMENTS[0]]
    for alignment in (claim.alignment, other) if bad else ():
        cases = [(({**case, "alignment": alignment},), out, claim.tolerated(case))
                 for case, out in tried]  # fmt: skip
        if cause := likely(entries, cases, agree=_agree):
            return cause
    return ()


def _agree(right: tuple[Array, float], observed: Array) -> bool:
    out, tolerance = right
    nothing = np.isnan(observed) & (out == 0)
    return bool(np.all((np.abs(out - observed) <= tolerance) | nothing))


def _distances(claim: AttentionClaim) -> dict[str, float]:
    """Variant → its largest error over the cases, in tolerances."""
    distances: dict[str, float] = {}
    for (case, _), variant in product(claim.observed, VARIANTS):
        right, tolerance = claim.tolerated(case)
        changed = claim.exact(variant.variant({"alignment": claim.alignment, **case}))[0]
        off = float(np.max(np.abs(changed - right))) / tolerance
        distances[variant.name] = max(off, distances.get(variant.name, 0.0))
    return {name: off for name, off in distances.items() if off}
