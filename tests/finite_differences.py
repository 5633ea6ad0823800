"""Central differences of functions of arrays and of a model's loss, independent of the library."""

import itertools

import numpy as np

from pyentmax.seq2seq.autograd import Tensor


def central_difference(function, at, weights, step=1e-6):
    """The gradient of Σ weights · function(at), one entry of `at` after the other."""
    at = np.array(at, dtype=np.float64)
    gradient = np.empty_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = np.sum(weights * (function(up) - function(down))) / (2 * step)
    return gradient


def assert_gradients(function, *arrays, rtol=1e-6, atol=1e-8, step=1e-6):
    """Check the tape's gradient of ``(function(*tensors) * weights).sum()`` against differences."""
    arrays = [np.array(a, dtype=np.float64) for a in arrays]
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    result = function(*tensors)
    weights = np.random.default_rng(7).standard_normal(result.shape)
    result.backward(weights)
    for number, (array, tensor) in enumerate(zip(arrays, tensors, strict=True)):

        def value(x, number=number):
            return function(*(Tensor(x if i == number else a) for i, a in enumerate(arrays))).data

        expected = central_difference(value, array, weights, step)
        assert tensor.grad is not None, f"operand {number} got no gradient"
        assert tensor.grad.shape == array.shape
        np.testing.assert_allclose(
            tensor.grad, expected, rtol=rtol, atol=atol, err_msg=f"gradient of operand {number}"
        )


def assert_parameter_gradients(params, loss):
    """Check the gradient of ``loss(params)`` along a random direction in each layer."""
    tensors = {name: Tensor(x, requires_grad=True) for name, x in params.items()}
    loss(tensors).backward()
    rng, step = np.random.default_rng(0), 1e-6
    for layer, names in itertools.groupby(sorted(params), key=lambda name: name.rpartition(".")[0]):
        direction = {name: rng.standard_normal(params[name].shape) for name in names}
        moved = (
            params | {name: params[name] + sign * step * v for name, v in direction.items()}
            for sign in (1, -1)
        )
        above, below = (loss(x).item() for x in moved)
        without = [name for name in direction if tensors[name].grad is None]
        assert not without, f"no gradient: {without}"
        np.testing.assert_allclose(
            sum((tensors[name].grad * v).sum() for name, v in direction.items()),
            (above - below) / (2 * step),
            rtol=2e-5,
            atol=1e-8,
            err_msg=f"directional derivative of the loss in {layer}",
        )
