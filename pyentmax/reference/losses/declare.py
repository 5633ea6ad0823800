"""The decorator that declares a loss, and how its calls are arranged.

The body of a loss sees scores of shape batch + (d,) with their maximum at 0, the `Target`, and the
mapping's parameter as it came. It returns each row's loss, or that and its gradient, which are
weighted and reduced here. A compiled kernel does the same for integer labels: it takes scores,
mask, label and weight of each row, and gives its loss and gradient, both times that weight, and
whether the row counts. For the mean it gets each weight's share in the sum of all weights, so that
nothing has to be scaled afterwards.

A loss of entries, one of each score, is summed over its row: see `loss_of_entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.backends.declare import (
    NO_KERNEL,
    Accelerated,
    Body,
    Declare,
    accelerated,
    decorator,
)
from pyentmax.engine.backends.entries import beta_like, run
from pyentmax.engine.calls.devices import is_dask, on_device_of
from pyentmax.engine.calls.dtypes import as_array, as_floating
from pyentmax.engine.calls.offsets import CutAxis, array_to_cut
from pyentmax.engine.calls.options import Options, checked_options
from pyentmax.engine.calls.parameters import Parameter, PerEntry, parts_of_largest
from pyentmax.engine.calls.rows import arrange_scores, check_mask, live_entries
from pyentmax.reference.losses.function import (
    _kernel_weights,
    _reduced,
    loss_by_body,
    plan_loss,
    weighted,
)
from pyentmax.reference.losses.targets import (
    checked_weight,
    labels_like,
    prepare_entries,
    row_weights,
    shares,
    with_class_weight,
)


def loss(body: Body, parameter: Parameter | None = None) -> Declare:
    """A loss: ``dispatch(z, y, parameter, axis, *options, workers, offsets)``.

    The options are those of `Options`, in its order. The body gets scores in rows, a
    `pyentmax.reference.losses.targets.Target` and the parameter as the caller gave it.
    """
    return decorator(_loss, body, parameter, ("number",))


def loss_and_grad(body: Body, parameter: Parameter | None = None) -> Declare:
    """A loss with its gradient, both from the body; called as the loss is."""
    return decorator(_loss, body, parameter, ("number", "entries"))


def loss_of_entries(
    body: Body, parameter: PerEntry, *, kernel: str, gradient: bool, each_a_row: bool
) -> Declare:
    """A sum of losses of entries, called as a loss is.

    The body, and the kernel of that name, see β = α − 1 as in `pyentmax.engine.backends.entries`,
    and give the loss and the slope of each entry. With `gradient` the slope is returned, too. With
    `each_a_row` every entry is a row of its own, and axis is None.
    """
    results: tuple[str, ...] = ("number",)
    if gradient:
        results += ("number" if each_a_row else "entries",)
    return decorator(_loss_of_entries, body, parameter, kernel, results, each_a_row)


def _loss(
    body: Body, parameter: Parameter | None, results: Sequence[str], function: Any
) -> Accelerated[..., Any]:
    name, named = function.__name__, "" if parameter is None else parameter.name
    arguments = ("z", "y", named, "axis", *Options._fields, "workers", "offsets")

    def dispatch(
        z: Any, y: Any, value: Any, axis: Any, reduction: Any, weight: Any, mask: Any,
        ignore_index: Any, label_smoothing: Any, class_weight: Any, workers: Any,
        offsets: Any = None,
    ) -> Any:  # fmt: skip
        use_kernels = workers is not NO_KERNEL
        chosen = (reduction, weight, mask, ignore_index, label_smoothing, class_weight)
        if offsets is not None:
            values = (z, y, value, axis, *chosen, workers, None)
            return loss_by_offsets(dispatch, arguments, parameter, results, offsets, *values)
        options = checked_options(*chosen)
        if class_weight is not None:
            options = with_class_weight(options, z, y, axis)
        if type(z) is not np.ndarray:
            if is_dask(z):
                this = function if use_kernels else function.reference
                arrays = {"z": z, "y": y, named: value, "axis": axis, **options._asdict()}
                return plan_loss(this, parameter, arrays, results)
            if use_kernels:
                given = (z, y, axis) if parameter is None else (z, y, value, axis)
                result = choice.run_on_gpu(name, parameter, value, (*given, *options[:-1]))
                if result is not NotImplemented:
                    return result
        rows = arrange_scores(z, axis, mask)
        checked = None if parameter is None else parameter.for_scores(value, rows)
        kernel = None
        if use_kernels:
            if workers is not None:
                workers = threads.counted(workers)
            kernel = choice.kernel_for(rows.array, name, parameter, checked)
        labels = labels_like(y, rows.batch, options) if use_kernels else None
        if kernel is not None and labels is not None:
            weights = _kernel_weights(labels, rows.array, options)
            if weights is not None:
                operands = (*rows.operands(), labels, weights)
                if parameter is not None:
                    operands += (parameter.kernel_operand(checked, rows.array),)
                parts = threads.run(kernel, operands, None, workers)
                loss, *gradients = _reduced(parts, labels, weights, options, rows.array.shape[-1])
                loss = loss.astype(rows.dtype, copy=False)
                return (loss, rows.finish(gradients[0])) if gradients else loss
        if kernel is None and labels is not None:

            def in_rows(arrays: Any, value: Any, mask: Any) -> Any:
                unweighted = ("none", None, mask, options.ignore_index, 0, None)
                z, y = arrays
                return dispatch(z, y, value, -1, *unweighted, workers)

            of_rows = (rows.mask, rows.array, labels)
            parts = choice.run_apart(in_rows, name, parameter, checked, *of_rows)
            if parts is not None:
                each, gradient = parts if isinstance(parts, tuple) else (parts, None)
                weights = row_weights(rows.array, labels, options)
                counts = live_entries(rows.array, rows.mask).any(axis=-1) & (weights != 0)
                weights = shares(np.where(counts, weights, 0), each.dtype, options)
                return weighted(each, gradient, counts[..., None], weights, rows, options)
        body_values = () if parameter is None else (value,)
        shifted = parameter is None or parameter.shifted
        return loss_by_body(body, rows, y, body_values, options, shifted=shifted)

    return accelerated(function, dispatch, arguments, body, parameter, results)


def _loss_of_entries(
    body: Body,
    parameter: PerEntry,
    kernel: str,
    results: Sequence[str],
    each_a_row: bool,
    function: Any,
) -> Accelerated[..., Any]:
    arguments = ("z", "y", parameter.name, "axis", *Options._fields, "workers", "offsets")

    def dispatch(
        z: Any, y: Any, value: Any, axis: Any, reduction: Any, weight: Any, mask: Any,
        ignore_index: Any, label_smoothing: Any, class_weight: Any, workers: Any,
        offsets: Any = None,
    ) -> Any:  # fmt: skip
        chosen = (reduction, weight, mask, ignore_index, label_smoothing, class_weight)
        if offsets is not None:
            values = (z, y, value, axis, *chosen, workers, None)
            return loss_by_offsets(dispatch, arguments, parameter, results, offsets, *values)
        options = checked_options(*chosen)
        if is_dask(z):
            given = {"z": z, "y": y, parameter.name: value, **options._asdict()}
            given |= {} if each_a_row else {"axis": axis}
            this = function.reference if workers is NO_KERNEL else function
            return plan_loss(this, None, given, results)
        if each_a_row:
            axis, (z, y, value, options) = -1, _each_a_row(parameter, z, y, value, options)
        if options.class_weight is not None:
            options = with_class_weight(options, z, y, axis, soft=False)
        rows = arrange_scores(z, axis, options.mask)
        beta = beta_like(parameter.for_scores(value, rows), rows.array)
        q, live, weights = prepare_entries(y, rows, options)
        each, slope = run(workers, kernel, body, rows.array, q, beta)
        each = np.sum(np.where(live, each, 0), axis=-1)
        slope = slope if len(results) > 1 else None
        result = weighted(each, slope, live, weights, rows, options)
        return (result[0], result[1][..., 0][()]) if each_a_row and slope is not None else result

    return accelerated(function, dispatch, arguments, body, parameter, results)


def _each_a_row(
    parameter: PerEntry, z: Any, y: Any, value: Any, options: Options
) -> tuple[Any, Any, Any, Options]:
    """The arguments of a call for which each entry is a row of one class."""
    z, y, mask = as_array(z, "z"), as_array(y, "y"), options.mask
    if y.shape != z.shape:  # or y could be taken for labels, which is another loss
        raise ValueError(f"y must have the shape of z, {z.shape}, got {y.shape}")
    if options.class_weight is not None:
        raise TypeError("class_weight is for labels: pass weight=, which broadcasts to z")
    value = parameter.checked(value, z, z.shape)
    if mask is not None:
        mask = np.broadcast_to(check_mask(mask, z, "z"), z.shape)[..., None]
    value = value[..., None] if value.ndim else value
    return z[..., None], y[..., None], value, options._replace(mask=mask)


def loss_by_offsets(
    call: Callable[..., Any],
    roles: Sequence[str],
    parameter: Parameter | None,
    results: Sequence[str],
    offsets: Any,
    *values: Any,
) -> Any:
    """What a loss gives where offsets cut the axis, as
    `pyentmax.engine.calls.offsets.call_by_offsets`.

    The rows' losses are summed here, for a mean by their weights' shares in the sum of those that
    count.
    """
    kwargs = dict(zip(roles, values, strict=True))
    options = Options(**{name: kwargs[name] for name in Options._fields})
    checked_options(*options)
    if options.class_weight is not None:
        raise TypeError("class_weight is not for offsets, whose rows have classes of their own")
    z, dtype = as_floating(array_to_cut("z", kwargs["z"]), "z")
    cut = CutAxis(offsets, z.shape, kwargs["axis"], "z")
    y = on_device_of(as_array(kwargs["y"], "y"), z, "y")
    weight: Any = np.ones_like(z, shape=cut.batch)
    if options.weight is not None:
        one_of_each = np.zeros_like(z, shape=(*cut.batch, 1))
        weight = weight * checked_weight(options.weight, one_of_each, options.reduction)
    mask = None if options.mask is None else check_mask(options.mask, z, "z")
    live = live_entries(z, mask)
    if isinstance(parameter, PerEntry):  # −∞ is a score as any other
        live = np.broadcast_to(True if mask is None else mask, z.shape)
    if y.dtype.kind in "iu" and y.shape == cut.batch:
        if options.ignore_index is not None:
            weight = np.where(y == options.ignore_index, 0, weight)
        cut.refuse_labels_of_empty_rows(y, weight)
    elif options.ignore_index is not None:
        live = live & (y != options.ignore_index)
    if options.reduction == "mean":
        weight = parts_of_largest(np.where(cut.any(live), weight, 0))
        total = np.sum(weight)
        weight = weight / (total + (total == 0))
    kwargs |= {"z": z, "y": y, "reduction": "none", "weight": weight}
    loss, *gradient = cut.run(call, list(kwargs.items()), parameter, results)
    if options.reduction != "none":
        loss = np.sum(loss)
    parts = [part.astype(dtype, copy=False) for part in (loss, *gradient)]
    return tuple(parts) if gradient else parts[0]
