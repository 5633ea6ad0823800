"""Rows with 8-bit copies, which prove of most rows that they have no weight.

Of the scores z_j = q · k_j of one query, α-entmax needs the few at the top exactly, and of all
others only that they are below the threshold. A copy of each row in 8 bits can prove that.

**Thresholds are monotone.** With β = α − 1, the threshold τ of a row solves

    Σ_j [β z_j − τ]₊^{1/β} = 1,

whose left side rises with every z_j and falls with τ. So if low_j ≤ z_j for all j, then
τ(low) ≤ τ(z), and β z_j ≤ τ(low) implies p_j = 0. A row j can therefore be left out if
β high_j ≤ τ(low) for some high_j ≥ z_j. What remains is solved with its own scores, and gives the
weights of the whole row: what was left out adds 0 to the sum. A bias is added to all three of
low_j ≤ z_j ≤ high_j, and rounding it is monotone. A sink is a score that is known.

**Scores between bounds.** A row k has a copy c m with integers |m_j| ≤ 127, a query q one, c' m',
with |m'_j| ≤ min(32,767, (2³¹ − 1)/(127 d)), so that m' · m fits 32 bits. Stored are

    c,    r ≥ ‖k − c m‖,    s ≥ r + ‖c m‖,    hence s ≥ ‖k‖ and s ≥ ‖c m‖;

r' and s' are the query's. Since q · k − c'm' · c m = q · (k − c m) + (q − c'm') · c m, by Cauchy
and Schwarz |q · k − c'm' · c m| ≤ s' r + r' s. It does not matter how the integers were found.

**Columns** that are large would spend the 8 bits of each row. So the row k / S is copied, and the
query q S asked, with powers of two S_j for the columns: both are exact, and q · k is the same. All
that stands below is then about these. The rounding of the score itself, too: it is at most
γ Σ_j |q_j| |k_j| = γ Σ_j |q_j S_j| |k_j / S_j|. An entry that becomes subnormal is off by less than
any term below.

**Rounding.** Let u = ε/2 be the rounding of one operation, and c and c' within 2^±40, so that
nothing overflows, and every product is a normal number or smaller than any term kept below.

1. *The score that is compared.* A sum of d products in any order is off by at most
   γ Σ_j |q_j| |k_j| ≤ γ ‖q‖ ‖k‖ ≤ γ s' s, with γ = d u/(1 − d u) ≤ d ε.
2. *The middle* a of the bounds, the integer m' · m times c' c, is rounded three times (float32
   rounds integers above 2²⁴): by at most 4u s' s.
3. *Its distance* e to the bounds is two products and a sum, of factors that were rounded, rounded
   up by 1 + 16ε. a ± e is rounded once more, by at most u (|a| + e) ≤ 2u s' s + u e.
4. *r and s* are sums of squares in float64: exact differences for float32, and off by at most
   2ε₆₄ ‖c m‖ for float64; the factor 1 + (d + 8) ε₆₄ is for the sums, their roots, and 1 + 2ε for
   storing them.

Together: e = (1 + 16ε) (s' r + (r' + (d + 16) ε s') s), of which (d + 16) ε s' s pays for 1 to 3.

**The threshold, rounded.** It is read from the largest p of the lower bounds, whose gap is 0:
−τ = t = p^β, measured from max low. By the contract of accuracy p is off by at most
4ε p + 16ε p^{2−α}/β, so t by β p^{β−1} times that, 20ε at most, and so is the threshold of the rows
that remain. Gaps β (z − max z) of at most 1 are rounded by 2u each. So a row is left out only if
β (high_j − max low) ≤ −(t + 64ε): the maximum is subtracted first, so that the slack is added to a
number of at most 1, whatever the scores are.

**What has no bound** has r = s = ∞ and is always scored: rows with a NaN, an infinity or a largest
entry outside of 127 · 2^±40 (but for zeros, whose copy is exact). A query of this kind scores all
rows.

So the weights are those of all scores. Against another way to sum q · k, a weight differs within
the contract for scores that are 2γ ‖q‖ ‖k‖ apart, and only rows within that of the threshold may
be in one support and not in the other.

The kernels of `choice.kernels` write to ``out`` the columns of the rows that remain, and where
those of each query end. Without kernels all rows are read.

    screen_rows(query, copies, bounds, mask, α, sink, bias)
        that may have a weight; operands are those of `few_queries`, with 1 < α ≤ 2, and instead of
        keys what `quantize_rows` made of them
    screen_best(query, copies, bounds, count, margin, bias)
        that may be among the `count` best of each query, or at most `margin` below the last of
        these (`exact_heads` has the proof)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.engine.calls.dtypes import KERNEL_DTYPES

LEAST_SAMPLE = 64  # rows that say which columns are large
STEP = 32  # copies end on a multiple of so many bytes
BLOCK = 4096  # rows of a matrix that are copied at a time, those of half types through float32
MOST_POWER = 20  # of 2, in the scales of columns
LEAST_UNIT, MOST_UNIT = 2.0**-40, 2.0**40
MOST = 127


class Bfloat16(np.ndarray):
    """Numbers of a type that NumPy lacks: their bits, as uint16."""


def is_half(array: Any) -> bool:
    """Whether these are numbers of a half type, or their bits."""
    return type(array) is Bfloat16 or getattr(array, "dtype", None) == np.float16


def widened(array: Any) -> Any:
    """Rows in float32 if they are of a half type; else the same array."""
    array = np.asarray(array)
    if array.dtype == np.uint16:
        wide = array.astype(np.uint32)
        return np.left_shift(wide, 16, out=wide).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def stand_in(array: Any) -> Any:
    """A placeholder for rows of a half type: their shape in float32, without their memory."""
    return np.broadcast_to(np.float32(0), array.shape) if is_half(array) else array


def rows_at(array: Any, columns: Any, stops: Any) -> tuple[Any, Any]:
    """Selected rows in the compute dtype, and their positions.

    From rows (…, n, d), those of the columns (…, k) before the last of `stops`, (…, m), of each
    matrix: (all, d) for all matrices, and positions (…, k). Float32 and float64 are not copied.
    """
    if array.dtype in KERNEL_DTYPES:
        return array, columns
    batch, parts, start = stops.shape[:-1], [], 0
    array, places = np.broadcast_to(array, (*batch, *array.shape[-2:])), np.empty_like(columns)
    for matrix in np.ndindex(batch):
        count = int(stops[matrix][-1])
        parts.append(array[matrix][columns[matrix][:count]])
        places[matrix][:count] = np.arange(start, start + count)
        start += count
    return widened(np.concatenate(parts)), places


class ScreenedRows:
    """Rows with copies of 8 bits, as keys of `attention` or the matrix of `entmax_linear`.

    The copies, and bounds on their error, prove for most rows that their weight is 0. Only the
    others are read in full, so that a query to many rows reads a quarter of their memory. Results
    are those of all rows (`pyentmax.sparse_attention.screened_rows` has the proof).

    Parameters
    ----------
    rows : array of shape (…, n, d), float16, float32 or float64
        kept as it is, not copied, until rows are appended, unless features do not lie side by
        side: what is changed in it afterwards makes results wrong. Of float16 only the rows that
        are read in full are converted, to float32
    room : int, default 0
        number of rows to take memory for at once, which copies `rows`: until they are more,
        `append` moves nothing

    Attributes
    ----------
    rows : array of shape (…, n, d)
        a view that cannot be written to
    shape, dtype, nbytes
        of the rows, and the bytes of memory of rows and copies

    Raises
    ------
    TypeError
        if rows are not an array of these types
    ValueError
        if they have fewer than two axes

    Examples
    --------
    >>> from pyentmax import attention
    >>> rng = np.random.default_rng(0)
    >>> query, key, value = rng.standard_normal((1, 8)), *rng.standard_normal((2, 500, 8))
    >>> screened = ScreenedRows(key)
    >>> bool(np.allclose(attention(query, screened, value), attention(query, key, value)))
    True
    >>> screened.append(rng.standard_normal((1, 8)))
    >>> screened
    ScreenedRows(501 rows of 8, float64)
    """

    def __init__(self, rows: Any, *, room: int = 0) -> None:
        if not isinstance(rows, np.ndarray) or (
            rows.dtype not in KERNEL_DTYPES and not is_half(rows)
        ):
            what = getattr(rows, "dtype", type(rows).__name__)
            raise TypeError(
                "rows: expected a NumPy array of float16, float32 or float64, got "
                f"{what}; convert it first"
            )
        if rows.ndim < 2:
            raise ValueError(
                f"rows must have at least two axes, rows and features, got shape {rows.shape}"
            )
        rows = np.asarray(rows, rows.dtype.newbyteorder("="))  # bits too, of uint16 from here on
        if rows.shape[-1] > 1 and rows.strides[-1] != rows.itemsize:
            rows = np.ascontiguousarray(rows)
        *batch, n, d = rows.shape
        self._count = n
        self._rows, self._owned = rows, False
        self._copies = np.empty((*batch, n, -(-d // STEP) * STEP), np.int8)
        self._bounds = np.empty((*batch, 3, n), widened(rows[..., :0, :]).dtype)
        self._scales = column_scales(rows).astype(self._bounds.dtype)
        self._is_scaled = bool((self._scales != 1).any())
        if room > n:
            self._reserve(room)
        self._screen(0, n)

    def _screen(self, start: int, stop: int) -> None:
        for i in range(start, stop, BLOCK):
            some = slice(i, min(i + BLOCK, stop))
            out = self._copies[..., some, :], self._bounds[..., some]
            if out[0].size:
                rows = widened(self._rows[..., some, :])
                with np.errstate(under="ignore"):
                    rows = rows / self._scales if self._is_scaled else rows
                quantize_rows(rows, out=out)

    @property
    def rows(self) -> Any:
        """The rows, as an array that cannot be written to."""
        is_bits = self._rows.dtype == np.uint16
        view = self._rows[..., : self._count, :].view(Bfloat16 if is_bits else np.ndarray)
        view.flags.writeable = False
        return view

    @property
    def copies(self) -> Any:
        """The integers of the copies, of shape (…, n, d and zeros)."""
        return self._copies[..., : self._count, :]

    @property
    def bounds(self) -> Any:
        """c, r and s of each row, of shape (…, 3, n)."""
        return self._bounds[..., : self._count]

    @property
    def scales(self) -> Any:
        """The columns' scales, of shape (…, 1, d): k / S is copied, and q S asked."""
        return self._scales

    @property
    def shape(self) -> tuple[int, ...]:
        """(…, n, d)."""
        return (*self._rows.shape[:-2], self._count, self._rows.shape[-1])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._rows.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The rows' dtype."""
        return self._rows.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with what is reserved for rows to come."""
        return int(self._rows.nbytes + self._copies.nbytes + self._bounds.nbytes)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        *batch, n, d = self.shape
        matrices = f", {tuple(batch)} matrices" if batch else ""
        return f"ScreenedRows({n} rows of {d}{matrices}, {self.dtype})"

    def append(self, more: Any) -> None:
        """Add rows behind the others, (…, k, d), in time that follows k.

        Raises
        ------
        ValueError
            if the shape is not that of the rows, but for their number
        TypeError
            if they are not real numbers
        """
        more = np.asarray(more)
        if more.dtype.kind not in "fiu":
            raise TypeError(f"more: expected real numbers, got dtype {more.dtype}")
        *batch, n, d = self.shape
        if more.ndim != self.ndim or more.shape[:-2] != tuple(batch) or more.shape[-1] != d:
            expected = ", ".join([*map(str, batch), "k", str(d)])
            raise ValueError(f"more must have the shape ({expected}), got {more.shape}")
        stop = n + more.shape[-2]
        if not self._owned or stop > self._rows.shape[-2]:
            self._reserve(max(stop, 2 * n))
        self._rows[..., n:stop, :] = more
        self._count = stop
        self._screen(n, stop)

    def _reserve(self, size: int, order: Any = None, rows: Any = None) -> None:
        """Move to memory for `size` rows of each matrix, in another order of the first axis.

        `rows` are such memory, which holds them already.
        """
        n = self._count

        def moved(array: Any, axis: int) -> Any:
            shape = list(array.shape)
            shape[0] = shape[0] if order is None else len(order)
            shape[axis] = size
            new = np.empty(shape, array.dtype)
            to, old = (np.moveaxis(x, axis, -1)[..., :n] for x in (new, array))
            if order is None:
                to[...] = old
            else:
                for place, matrix in enumerate(order):
                    to[place] = old[matrix]
            return new

        self._rows = moved(self._rows, -2) if rows is None else rows
        self._scales = self._scales if order is None else self._scales[order]
        self._copies = moved(self._copies, -2)
        self._bounds, self._owned = moved(self._bounds, -1), True

    def crop(self, n: int) -> None:
        """Keep the first n rows; those that are appended later overwrite the others.

        Raises
        ------
        ValueError
            if there are not so many
        """
        if not 0 <= n <= self._count:
            raise ValueError(f"n must be from 0 to the number of rows, {self._count}, got {n}")
        self._count = n

    def take(self, order: Any) -> ScreenedRows:
        """The matrices `order` of the first axis of the batch, as when beams are reordered.

        Raises
        ------
        ValueError
            if there is one matrix only, or `order` does not have one axis
        """
        if self.ndim < 3 or np.ndim(order) != 1:
            raise ValueError(
                "take: expected rows of shape (batch, …, n, d) and numbers along one axis, got "
                f"{self.shape} and shape {np.shape(order)}"
            )
        return self._reordered(np.asarray(order), self._rows.shape[-2])

    def _reordered(self, order: Any, size: int, rows: Any = None) -> ScreenedRows:
        result = object.__new__(ScreenedRows)
        vars(result).update(vars(self))
        result._reserve(size, order, rows)
        return result

    def _in_room(self, rows: Any, order: Any = None) -> ScreenedRows:
        """The same in memory (…, size, d) that holds these rows, in this order, and is theirs.

        Those that are appended are written behind them.
        """
        order = np.arange(len(rows)) if order is None else order
        return self._reordered(order, rows.shape[-2], rows)


def column_scales(rows: Any) -> Any:
    """Powers of two, (…, 1, d), that rows (…, n, d) are divided by; 1 for few rows.

    A scale is that of a column, or its root, or 1: for which the norm of the scales, a query's if
    all its features are alike, times the mean of the rows' largest entries is least.
    """
    *batch, n, d = rows.shape
    ones = np.ones((*batch, 1, d))
    if n < LEAST_SAMPLE or not ones.size:
        return ones
    sizes = np.abs(widened(rows[..., :: -(-n // 1024), :]).astype(np.float64))
    with np.errstate(all="ignore"):
        rms = np.sqrt(np.mean(sizes**2, axis=-2, keepdims=True))
        powers = np.log2(rms / np.median(rms, axis=-1, keepdims=True))
        powers = np.where(np.isfinite(powers), powers, 0).clip(-MOST_POWER, MOST_POWER)
        choices = [2 ** np.rint(powers * part) for part in (0, 0.5, 1)]
        costs = [
            np.linalg.norm(x, axis=-1) * np.mean((sizes / x).max(axis=-1), axis=-1, keepdims=True)
            for x in choices
        ]
    best = np.argmin(costs, axis=0)[None, ..., None]
    return np.take_along_axis(np.stack(choices), best, axis=0)[0]


def most_of_query(d: int) -> int:
    """The largest integer of a query: its products with 8 bits sum to less than 2³¹."""
    return min(32767, (2**31 - 1) // MOST // max(d, 1))


def _quantized(x: Any, most: int) -> tuple[Any, Any, Any, Any]:
    """The integers m of rows x, c, r and s, the last three in float64."""
    d, eps = x.shape[-1], np.finfo(np.float64).eps
    with np.errstate(all="ignore"):
        largest = np.abs(x).max(axis=-1, initial=0)
        unit = (largest / x.dtype.type(most)).astype(x.dtype)
        bounded = (unit >= LEAST_UNIT) & (unit <= MOST_UNIT)
        wide = x.astype(np.float64)
        step = np.where(bounded, unit, 1).astype(np.float64)[..., None]
        m = np.where(bounded[..., None], np.rint(wide / step), 0).clip(-most, most)
        above = 1 + (d + 8) * eps
        size = np.linalg.norm(step * m, axis=-1) * above
        error = np.linalg.norm(wide - step * m, axis=-1) * above + 2 * eps * size
    error = np.where(bounded, error, np.where(largest == 0, 0, np.inf))
    return m, np.where(bounded, unit, 0), error, np.where(bounded, error + size, error)


@writes_out
def quantize_rows(rows: Any, *, out: tuple[Any, Any]) -> None:
    """Copies in 8 bits of rows (…, n, d), behind which are zeros, and c, r and s, (…, 3, n)."""
    copies, bounds = out
    m, *three = _quantized(rows, MOST)
    copies[...] = 0
    copies[..., : rows.shape[-1]] = m
    above = 1 + 2 * np.finfo(rows.dtype).eps
    bounds[..., 0, :], bounds[..., 1, :], bounds[..., 2, :] = (
        three[0], three[1] * above, three[2] * above
    )  # fmt: skip


def score_bounds(query: Any, copies: Any, bounds: Any) -> tuple[Any, Any]:
    """Below and above the scores of queries (…, m, d), in their dtype: a ∓ e of the proof."""
    real, d = query.dtype.type, query.shape[-1]
    eps = np.finfo(real).eps
    m, unit, error, size = _quantized(query, most_of_query(d))
    products = m @ np.swapaxes(copies[..., :d], -1, -2).astype(np.float64)  # exact: below 2³¹
    middle = products.astype(real) * (unit.astype(real)[..., None] * bounds[..., None, 0, :])
    by_error = (size * (1 + 16 * eps)).astype(real)[..., None]
    by_size = ((error + (d + 16) * eps * size) * (1 + 16 * eps)).astype(real)[..., None]
    distance = by_error * bounds[..., None, 1, :] + by_size * bounds[..., None, 2, :]
    return middle - distance, middle + distance
