"""Central differences of functions of arrays and of a model's loss, independent of the library."""

import itertools

import numpy as np

from pyentmax.autograd import Tensor


def assert_gradients(function, *arrays, rtol=1e-6, atol=1e-8, step=1e-6):
    """Check the tape's gradient of ``(function(*tensors) * weights).sum()`` against differences."""
    arrays = [np.array(a, dtype=np.float64) for a in arrays]
    weights = np.random.default_rng(7).standard_normal(function(*(Tensor(a) for a in arrays)).shape)

    def value():
        return float((function(*(Tensor(a) for a in arrays)).data * weights).sum())

    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    function(*tensors).backward(weights)
    for number, (array, tensor) in enumerate(zip(arrays, tensors, strict=True)):
        expected = np.empty_like(array)
        for index in np.ndindex(array.shape):
            kept = array[index]
            array[index] = kept + step
            above = value()
            array[index] = kept - step
            below = value()
            array[index] = kept
            expected[index] = (above - below) / (2 * step)
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
