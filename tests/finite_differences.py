"""Central differences of a scalar function of several arrays, written apart from the library."""

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
