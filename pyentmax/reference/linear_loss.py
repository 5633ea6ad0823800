"""Fenchel-Young losses of an output layer, whose scores exist for a few rows at a time.

For inputs x, one row of a matrix W for each class, and a bias b, the scores are z = W x + b, and
the loss is L(z; q) = Ω*(z) + Ω(q) − q·z with the gradients

    ∂L/∂z = p − q =: g,    ∂L/∂x = Wᵀ g,    ∂L/∂W = g xᵀ,    ∂L/∂b = g.

Three products as large as that of W and x, if g has no zeros. At a sparse p and a label, g has
non-zeros in the support and at the label alone, and the last two products run over these: with 30
of 32,000 classes they cost next to nothing. So the scores of a chunk are one product by BLAS; each
of its rows is mapped while it lies in the cache; and only the non-zeros of g are stored. Where g
has many, as before a model has learned anything, the chunk's gradients are two products as well.

With smoothed labels, q = (1 − ε) e_y + (ε/d) 1, d the number of classes whose bias is not −∞. The
second part is the same for all rows, so it changes the gradients by matrices of rank one,
−(ε/d) 1 (Σ x)ᵀ for W, and the loss by terms that take no pass over the scores:

    L(z; q) = L(z; e_y) + ε (z_y − mean z) + Ω(q) − Ω(e_y).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.calls.devices import on_device_of
from pyentmax.engine.calls.dtypes import KERNEL_DTYPES, as_floating
from pyentmax.engine.calls.options import Options, checked_options
from pyentmax.engine.calls.parameters import parts_of_largest
from pyentmax.engine.calls.rows import Rows, broadcasts
from pyentmax.reference.fenchel_young import (
    fenchel_young_loss,
    fenchel_young_loss_and_grad,
    record_and_parameters,
)
from pyentmax.reference.losses.targets import (
    checked_labels,
    labels_or,
    refuse_ignored_distributions,
    row_weights,
)
from pyentmax.reference.mapping import AnyMapping as Mapping

CHUNK_BYTES = 1 << 25  # of scores, if the caller does not say how many rows a chunk has
PIECE = 1 << 18  # scores that a thread maps at a time: a megabyte, in its cache
# Of a chunk's gradient. Beyond it, products with all entries are faster than those with the others.
MOST_NONZEROS = 1 / 16
MOST_HELD = 1 << 20  # non-zeros that wait for a pass over the gradient of the rows
BLOCK_BYTES = 1 << 20  # of that gradient, worked on at a time


def linear_loss(
    x: Any,
    rows: Any,
    y: Any,
    mapping: str | Mapping = "entmax15",
    *,
    bias: Any = None,
    softcap: float | None = None,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    **parameters: Any,
) -> Any:
    """The Fenchel-Young loss of the scores ``x @ rows.T + bias``, without an array of all scores.

    Parameters
    ----------
    x : array of shape (…, d)
        the inputs of the layer, such as hidden states
    rows : array of shape (classes, d)
        a row of weights for each class
    y : integer labels of shape (…,), or distributions of shape (…, classes)
    mapping : name of a row of `pyentmax.MAPPINGS` that has a loss, or a user-defined `Mapping`
    bias : array of shape (classes,), optional
        −∞ excludes a class
    softcap : float, optional
        c in z = c · tanh((x @ rows.T + bias) / c)
    reduction, weight, ignore_index, label_smoothing : as in `fenchel_young_loss`
        `weight` is of rows; weights of classes, of shape (classes,), are those of the rows' labels,
        ``weight=class_weight[np.where(y == ignore_index, 0, y)]``. Ignored rows, and those of
        weight 0, cost nothing
    chunk : int, optional
        rows of x whose scores are computed at a time; by default as many as fit in 32 MB
    **parameters
        the mapping's own, such as ``alpha``; they broadcast against the labels' shape

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError
        if shapes do not fit, a label is out of range, or an option is
    TypeError
        if an argument is of the wrong kind, or a parameter is missing or unknown

    Notes
    -----
    The same as ``fenchel_young_loss(x @ rows.T + bias, y, mapping)``, to rounding, and for any
    number of threads (`set_workers`) to the last bit. BLAS, which multiplies, has its own. Half
    types are computed in float32.

    Examples
    --------
    >>> x, rows = np.array([[1.0, 0.5]]), np.array([[2.0, 0.0], [1.0, 1.2], [-1.0, 0.0]])
    >>> print(linear_loss(x, rows, [0]).round(4))
    0.2187
    """
    options = checked_options(reduction, weight, None, ignore_index, label_smoothing)
    layer = x, rows, y, mapping, parameters, bias
    return passes(*layer, options, chunk, softcap=softcap, wanted="")[0]


def linear_loss_and_grad(
    x: Any,
    rows: Any,
    y: Any,
    mapping: str | Mapping = "entmax15",
    *,
    bias: Any = None,
    softcap: float | None = None,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    **parameters: Any,
) -> tuple[Any, ...]:
    """`linear_loss` and its gradients in x, the rows and, if there is one, the bias.

    Parameters
    ----------
    x, rows, y, mapping, bias, softcap, weight : as in `linear_loss`
    ignore_index, label_smoothing, chunk, **parameters : as in `linear_loss`
    reduction : "mean" or "sum"

    Returns
    -------
    loss : float
    in_x : array of x's shape
    in_rows : array of the rows' shape
        zeros for a class that is in no row's support and is no label, unless labels are smoothed
    in_bias : array of the bias' shape
        if there is a bias

    Raises
    ------
    ValueError
        as in `linear_loss`, and for the reduction "none"
    TypeError
        as in `linear_loss`

    Examples
    --------
    >>> x, rows = np.array([[1.0, 0.5]]), np.array([[2.0, 0.0], [1.0, 1.2], [-1.0, 0.0]])
    >>> loss, in_x, in_rows = linear_loss_and_grad(x, rows, [0], "sparsemax")
    >>> print(loss.round(4), in_x.round(4))
    0.09 [[-0.3   0.36]]
    >>> print(in_rows.round(4))
    [[-0.3  -0.15]
     [ 0.3   0.15]
     [ 0.    0.  ]]
    """
    options = checked_options(reduction, weight, None, ignore_index, label_smoothing)
    if reduction == "none":
        raise ValueError(
            "reduction must be mean or sum for gradients, which are of one number, got 'none'; "
            "weight= scales each row's"
        )
    layer = x, rows, y, mapping, parameters, bias
    return passes(*layer, options, chunk, softcap=softcap)


# --- the passes -----------------------------------------------------------------------------------


class _Layer(NamedTuple):
    """The rows of x that count, and what belongs to them."""

    x: Any
    rows: Any
    bias: Any
    y: Any
    share: Any
    """The factor of each row's loss and gradient."""
    record: Mapping
    values: tuple[Any, ...]
    """The mapping's parameters, each a number or one for each row of x."""
    smoothing: float
    softcap: float | None
    wanted: str
    matmul: Callable[..., Any]
    add_product: Callable[..., Any] | None
    workers: int

    def losses(self, function: Callable[..., Any], scores: Any, some: slice, smoothing: Any) -> Any:
        """The values of a loss function for the scores of some rows."""
        values = (value[some] if value.ndim else value for value in self.values)
        named = dict(zip(self.record.parameters, values, strict=True))
        options = {"reduction": "none", "label_smoothing": smoothing}
        return function(scores, self.y[some], self.record, **options, **named)


@np.errstate(under="ignore")
def passes(
    x: Any,
    rows: Any,
    y: Any,
    mapping: str | Mapping,
    parameters: dict[str, Any],
    bias: Any,
    options: Options,
    chunk: int | None,
    *,
    softcap: float | None = None,
    wanted: str = "xrb",
    upstream: Any = None,
    supports: tuple[Any, ...] | bool = False,
    matmul: Callable[..., Any] = np.matmul,
    add_product: Callable[..., Any] | None = None,
) -> tuple[Any, ...]:
    """The loss, reduced, and the gradients in x, the rows, and the bias if there is one; None in
    place of those that are not wanted.

    Parameters
    ----------
    x, rows, y, mapping, parameters, bias, chunk, softcap
        as in `linear_loss`
    options : Options
        checked
    wanted : str
        of the gradients those in x, rows and bias, by their first letters; "" for the loss alone
    upstream : array of the labels' shape, optional
        what each row's share in the loss and gradients is multiplied by, of any sign
    supports : bool or tuple of arrays, default False
        True: in place of gradients return the non-zeros of those of scores, before shares, if they
        are few: values, columns, and where each row's end. Such a tuple, for a later call: make the
        gradients of it, and no loss
    matmul : callable
        ``matmul(a, b, out=out)`` for two matrices
    add_product : callable, optional
        ``add_product(a, b, out)``, which adds their product to what is there
    """
    record, named = record_and_parameters(mapping, parameters)
    given = {"x": x, "rows": rows} | ({} if bias is None else {"bias": bias})
    arrays, dtypes = zip(*(as_floating(array, name) for name, array in given.items()), strict=True)
    dtype = np.result_type(*arrays)
    x, rows, *rest = (
        on_device_of(array, arrays[0], name).astype(dtype, copy=False)
        for name, array in zip(given, arrays, strict=True)
    )
    if rows.ndim != 2 or not x.ndim or x.shape[-1] != rows.shape[1] or not len(rows):
        raise ValueError(
            "x must have the shape (…, d) and rows (classes, d), of at least one class, got "
            f"{x.shape} and {rows.shape}"
        )
    bias = rest[0] if rest else None
    if bias is not None and bias.shape != rows.shape[:1]:
        raise ValueError(f"bias must have the shape {rows.shape[:1]}, got {bias.shape}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be above 0, got {softcap}")
    chunk = _checked_chunk(chunk, rows)

    batch = x.shape[:-1]
    y, share, keep = _targets(x, rows, bias, y, options)
    if upstream is not None:
        share = share * np.broadcast_to(upstream, batch).reshape(-1)[keep]
    values = tuple(
        _value_of_rows(name, value, batch, keep)
        for name, value in zip(record.parameters, named, strict=True)
    )
    # Kernels read row after row.
    flat, rows = np.ascontiguousarray(x.reshape(-1, x.shape[-1])[keep]), np.ascontiguousarray(rows)
    layer = _Layer(
        flat, rows, bias, y, share.astype(dtype), record, values, options.label_smoothing, softcap,
        wanted, matmul, add_product, threads.get_workers(),
    )  # fmt: skip
    layer.losses(fenchel_young_loss, np.empty_like(x, shape=(0, len(rows))), slice(0), 0.0)
    if isinstance(supports, tuple):
        each, found = np.zeros_like(share), _gradients_from(layer, *supports)
    else:
        each, *found = _run(layer, chunk, _Supports if supports else _Gradients if wanted else None)
    if options.reduction == "none":
        loss = np.zeros_like(each, shape=math.prod(batch))
        loss[keep] = each
        loss = loss.reshape(batch)
    else:
        loss = np.sum(each)
    loss = loss.astype(np.result_type(*dtypes))[()]
    if not wanted or supports is True:
        return loss, *found
    if "x" in wanted:
        in_x = found[0]
        if type(keep) is not slice:
            in_x = np.zeros_like(x, shape=(math.prod(batch), x.shape[-1]))
            in_x[keep] = found[0]
        found[0] = in_x.reshape(x.shape)
    pairs = zip(found, dtypes, strict=False)
    return loss, *(None if part is None else part.astype(to, copy=False) for part, to in pairs)


def _checked_chunk(chunk: Any, rows: Any) -> int:
    if chunk is None:
        return max(1, CHUNK_BYTES // (len(rows) * rows.itemsize))
    try:
        chunk = operator.index(chunk)
    except TypeError:
        raise TypeError(f"chunk must be a whole number or None, got {chunk!r}") from None
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    return chunk


def _targets(x: Any, rows: Any, bias: Any, y: Any, options: Options) -> tuple[Any, Any, Any]:
    """The targets of the rows of x that count, their shares in the loss, and their indices."""
    batch = x.shape[:-1]
    like = np.broadcast_to(np.zeros_like(x, shape=()), (*batch, len(rows)))  # scores, in no memory
    y, is_label = labels_or(y, "distributions", Rows(like, None, like.shape, (x.ndim - 1,), None))
    refuse_ignored_distributions(is_label, options)
    weight = np.broadcast_to(row_weights(like, y, options), batch).reshape(-1)
    counts = weight != 0
    if bias is not None:
        counts = counts & np.any(bias != -np.inf)
    keep = slice(None) if counts.all() else np.flatnonzero(counts)
    y, weight = y.reshape(-1, *y.shape[len(batch) :])[keep], weight[keep]
    if is_label:
        y, _ = checked_labels(y, counts[keep], len(rows))
    if options.reduction == "mean" and len(weight):
        weight = parts_of_largest(weight)
        weight = weight / np.sum(weight)
    return y, weight, keep


def _value_of_rows(name: str, value: Any, batch: tuple[int, ...], keep: Any) -> Any:
    """A parameter of the mapping: one number, or one for each row that counts."""
    value = as_floating(value, name)[0]
    if not value.ndim:
        return value
    if not broadcasts(value.shape, batch):
        raise ValueError(
            f"{name} of shape {value.shape} does not broadcast to the labels' shape, {batch}"
        )
    return np.broadcast_to(value, batch).reshape(-1)[keep]


def _run(layer: _Layer, chunk: int, collect: Callable[[_Layer], Any] | None) -> tuple[Any, ...]:
    """Each row's loss, and what is collected of the gradients of scores."""
    x, rows, cap = layer.x, layer.rows, layer.softcap
    each = np.zeros_like(x, np.float64, shape=len(x))
    uniform = _Uniform.of(layer)
    smoothing = layer.smoothing if uniform is None else 0.0
    found = None if collect is None else collect(layer)
    room = np.empty_like(x, shape=(min(chunk, len(x)), len(rows)))
    step = max(1, PIECE // len(rows)) if isinstance(x, np.ndarray) else chunk

    def begin() -> Callable[[slice], None]:
        add = None if found is None else found.collector()

        def work(some: slice) -> None:
            z = room[some.start - start : some.stop - start]
            if layer.bias is not None:
                z += layer.bias
            if cap is not None:
                z[...] = np.where(z == -np.inf, z, cap * np.tanh(z / cap))
            if add is None:
                loss = layer.losses(fenchel_young_loss, z, some, smoothing)
            else:
                loss, g = layer.losses(fenchel_young_loss_and_grad, z, some, smoothing)
            if uniform is not None:
                loss = uniform.loss(loss, z, some)
            each[some] = loss * layer.share[some]
            if add is not None:
                if uniform is not None:  # p − (1 − ε) e_y
                    g[np.arange(len(g)), layer.y[some]] += layer.smoothing
                if cap is not None:
                    g *= 1 - np.square(np.maximum(z, -cap) / cap)
                add(g, some, z)

        return work

    for start in range(0, len(x), chunk):
        stop = min(start + chunk, len(x))
        scores = room[: stop - start]
        layer.matmul(x[start:stop], rows.T, out=scores)
        pieces = [slice(i, min(i + step, stop)) for i in range(start, stop, step)]
        threads.run_pieces(pieces, begin, layer.workers)
        if found is not None:
            found.end_chunk(scores, start, stop)
    return (each,) if found is None else (each, *found.finish(uniform))


class _Uniform(NamedTuple):
    """The contribution of smoothed labels' uniform part to losses and gradients."""

    layer: _Layer
    live: Any
    """The classes whose bias is not −∞."""
    count: Any
    mean: Any
    """The mean of their rows."""
    gap: Any
    """Ω(q) − Ω(e_y)."""

    @classmethod
    def of(cls, layer: _Layer) -> _Uniform | None:
        """None if labels are not smoothed, or each row's whole distribution has to be looked at."""
        record, epsilon = layer.record, 0.0 if layer.softcap else layer.smoothing
        same = record.permutation_equivariant and not any(v.ndim for v in layer.values)
        if (
            not epsilon
            or not same
            or not record.regularizer.is_defined
            or layer.y.ndim > 1
            or not len(layer.x)
        ):
            return None
        live = np.ones_like(layer.x, bool, shape=len(layer.rows))
        if layer.bias is not None:
            live = layer.bias != -np.inf
        count = int(np.count_nonzero(live))
        vertex = np.zeros_like(layer.x, np.float64, shape=count)
        vertex[0] = 1
        smoothed = (1 - epsilon) * vertex + epsilon / count
        gap = record.regularizer(smoothed, *layer.values)
        gap = gap - record.regularizer(vertex, *layer.values)
        return cls(layer, live, count, live.astype(layer.x.dtype) @ layer.rows / count, gap)

    def loss(self, loss: Any, z: Any, some: slice) -> Any:
        """L(z; e_y) to L(z; q), for the scores of some rows."""
        layer = self.layer
        mean = layer.x[some] @ self.mean
        if layer.bias is not None:
            mean = mean + np.sum(np.where(self.live, layer.bias, 0)) / self.count
        own = z[np.arange(len(z)), layer.y[some]]
        with np.errstate(invalid="ignore"):
            moved = loss + (layer.smoothing * (own - mean) + self.gap)
        # That of a label on a masked class is infinite. Values below 0 are rounding.
        return np.where(loss == np.inf, loss, np.maximum(moved, 0))


def _gradients_from(layer: _Layer, values: Any, columns: Any, ends: Any) -> list[Any]:
    """The gradients, of the non-zeros that `_Supports` has found."""
    found, sizes = _Gradients(layer), np.diff(ends, prepend=0)
    found.hold([found.add_nonzeros(values, columns, sizes, slice(0, len(layer.x)))])
    return list(found.finish(_Uniform.of(layer)))


def _packer(x: Any) -> Callable[..., Any] | None:
    return choice.packer() if type(x) is np.ndarray and x.dtype in KERNEL_DTYPES else None


def _packed(pack: Callable[..., Any], g: Any, room: list[Any]) -> tuple[Any, Any, Any] | None:
    """The non-zeros of g, their columns, and each row's number of them; None if they are many."""
    if not room:
        room.extend((np.empty(g.size, g.dtype), np.empty(g.size, np.int32)))
    ends = np.empty(len(g), np.int64)
    count = pack(g, *room, ends, 0)
    if count > MOST_NONZEROS * g.size:
        return None
    return room[0][:count].copy(), room[1][:count].copy(), np.diff(ends, prepend=0)


class _Supports:
    """The non-zeros of the gradients of scores, as long as no piece has many."""

    def __init__(self, layer: _Layer) -> None:
        self._pack = _packer(layer.x)
        self._pieces: dict[int, tuple[Any, Any, Any]] = {}

    def collector(self) -> Callable[[Any, slice, Any], None]:
        """As that of `_Gradients`."""
        room: list[Any] = []

        def add(g: Any, some: slice, scaled: Any) -> None:
            piece = None if self._pack is None else _packed(self._pack, g, room)
            if piece is None:
                self._pack = None
            else:
                self._pieces[some.start] = piece

        return add

    def end_chunk(self, scaled: Any, start: int, stop: int) -> None:
        """Nothing: pieces stay."""

    def finish(self, uniform: _Uniform | None) -> tuple[Any, ...]:
        """Values, columns, and where each row's end; nothing if there are many, or no rows."""
        if self._pack is None or not self._pieces:
            return ()
        pieces = (piece for _, piece in sorted(self._pieces.items()))
        values, columns, sizes = map(np.concatenate, zip(*pieces, strict=True))
        return values, columns, np.cumsum(sizes)


class _Gradients:
    """The gradients in x, the rows and the bias, from those of scores, which come in pieces.

    Of a piece with few non-zeros these are kept. If one of a chunk has many, the chunk is
    multiplied with all its zeros.
    """

    def __init__(self, layer: _Layer) -> None:
        self._layer = layer
        x, rows = layer.x, layer.rows
        self._pack = _packer(x)
        self._in_x: Any = np.zeros_like(x) if "x" in layer.wanted else None
        self._in_rows: Any = np.zeros_like(rows) if "r" in layer.wanted else None
        self._in_bias = np.zeros_like(rows, np.float64, shape=len(rows))
        size = max(1, BLOCK_BYTES // max(1, rows.shape[1] * rows.itemsize))
        self._blocks = [slice(i, min(i + size, len(rows))) for i in range(0, len(rows), size)]
        self._pieces: dict[int, tuple[Any, Any, Any]] = {}  # of a chunk, by their first rows
        self._held: list[tuple[Any, Any, Any]] = []  # those of all rows from the `_added`-th on
        self._added = 0
        self._chunk_is_dense = False

    def collector(self) -> Callable[[Any, slice, Any], None]:
        """A function for one thread, of p − q for some rows, which rows, and room for the product
        of these with the rows' shares.
        """
        pack, room = self._pack, list[Any]()

        def add(g: Any, some: slice, scaled: Any) -> None:
            if pack is not None and not self._chunk_is_dense:
                if piece := _packed(pack, g, room):
                    self._pieces[some.start] = self.add_nonzeros(*piece, some)
                    return
            self._chunk_is_dense = True
            np.multiply(g, self._layer.share[some, None], out=scaled)

        return add

    def add_nonzeros(self, values: Any, columns: Any, sizes: Any, some: slice) -> Any:
        """Add what some rows have in x, and return their non-zeros times their shares."""
        values, ends = values * self._layer.share[some].repeat(sizes), np.cumsum(sizes)
        operands = values, columns, ends - sizes, ends, self._layer.rows
        if self._in_x is not None:
            choice.kernels()["rows_product"](*operands, out=self._in_x[some])
        return values, columns, sizes

    def hold(self, pieces: list[Any]) -> None:
        """Keep non-zeros for a pass over the gradient of the rows."""
        self._held += pieces

    def end_chunk(self, scaled: Any, start: int, stop: int) -> None:
        """Hold the non-zeros of a chunk, or if they are many, multiply it."""
        pieces, self._pieces = sorted(self._pieces.items()), {}
        if not self._chunk_is_dense:
            self.hold([piece for _, piece in pieces])
            if sum(len(values) for values, _, _ in self._held) > MOST_HELD:
                self._add_held(stop)
            return
        for first, (values, columns, sizes) in pieces:
            part = scaled[first - start : first - start + len(sizes)]
            part[...] = 0
            part[np.arange(len(sizes)).repeat(sizes), columns] = values
        self._add_held(start)
        layer, self._chunk_is_dense, self._added = self._layer, False, stop
        if self._in_x is not None:
            layer.matmul(scaled, layer.rows, out=self._in_x[start:stop])
        if self._in_rows is None:
            pass
        elif layer.add_product is not None:
            layer.add_product(scaled.T, layer.x[start:stop], self._in_rows)
        else:
            product = np.empty_like(layer.rows[self._blocks[0]])
            for block in self._blocks:
                part = product[: block.stop - block.start]
                layer.matmul(scaled[:, block].T, layer.x[start:stop], out=part)
                self._in_rows[block] += part
        self._in_bias += np.sum(scaled, axis=0)

    def _add_held(self, stop: int) -> None:
        """Add what the held non-zeros contribute, those of the rows up to `stop`."""
        x, self._added = self._layer.x[self._added : stop], stop
        if not self._held:
            return
        values, columns, sizes = (
            np.concatenate(arrays) for arrays in zip(*self._held, strict=True)
        )
        self._held, ends = [], np.cumsum(sizes)
        operands = values, columns, ends - sizes, ends, x

        def begin() -> Callable[[slice], None]:
            product = np.empty_like(self._in_rows[self._blocks[0]])

            def work(block: slice) -> None:
                part = product[: block.stop - block.start]
                choice.kernels()["columns_product"](*operands, np.int64(block.start), out=part)
                self._in_rows[block] += part

            return work

        if self._in_rows is not None:
            threads.run_pieces(self._blocks, begin, self._layer.workers)
        self._in_bias += np.bincount(columns, values, len(self._in_bias))

    def finish(self, uniform: _Uniform | None) -> tuple[Any, ...]:
        """All gradients."""
        layer = self._layer
        self._add_held(len(layer.x))
        if uniform is not None:
            share = layer.smoothing * layer.share
            if self._in_x is not None:
                self._in_x -= share[:, None] * uniform.mean
            if (out := self._in_rows) is not None:
                live = uniform.live[:, None]
                np.subtract(out, share @ layer.x / uniform.count, out, where=live)
            self._in_bias -= np.where(uniform.live, np.sum(share) / uniform.count, 0)
        found = self._in_x, self._in_rows
        if layer.bias is None:
            return found
        return *found, self._in_bias if "b" in layer.wanted else None
