"""The tape itself: what is recorded, in which order gradients flow, and what is refused."""

import numpy as np
import pytest

from pyentmax.autograd import GradientProduct, GradientSlice, Tensor


def test_nothing_is_recorded_without_need():
    y = Tensor(np.ones(3)) * 2 + 1
    assert (y.requires_grad, y.parents, y.vjp) == (False, (), None)


def test_a_value_used_twice_gets_both_gradients():
    x = Tensor(np.array(3.0), requires_grad=True)
    y = x * x
    (y * y + y).backward()
    np.testing.assert_array_equal(x.grad, 4 * 3**3 + 2 * 3)


def test_backward_twice_adds():
    x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    for _ in range(2):
        (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [4, 8])


def test_adding_gradients_never_writes_into_a_neighbour():
    # add's VJP hands the same array to both parents; the second contribution to x must not land in
    # the array that y got too.
    x, y = (Tensor(np.zeros(2), requires_grad=True) for _ in "xy")
    ((x + y) + x * 5).sum().backward()
    np.testing.assert_array_equal(x.grad, [6, 6])
    np.testing.assert_array_equal(y.grad, [1, 1])


def test_parts_and_products_and_arrays_add_up():
    x = Tensor(np.zeros((2, 2)), requires_grad=True)
    left, right = np.array([[1.0, 2.0]]), np.array([[10.0, 20.0]])
    contributions = [
        GradientSlice((0, 1), 1.0),
        np.ones((2, 2)),
        GradientProduct(left, right),
        GradientProduct(left, right),
    ]
    y = Tensor(np.array(0.0), parents=[x] * 4, vjp=lambda g: contributions)
    y.backward()
    np.testing.assert_array_equal(x.grad, [[21, 42], [41, 81]])


def test_a_part_does_not_write_into_the_array_it_joins():
    shared = np.ones(2)
    x = Tensor(np.zeros(2), requires_grad=True)
    y = Tensor(np.array(0.0), parents=[x, x], vjp=lambda g: [shared, GradientSlice(0, 1.0)])
    y.backward()
    np.testing.assert_array_equal(x.grad, [2, 1])
    np.testing.assert_array_equal(shared, [1, 1])


def test_a_long_chain_does_not_exhaust_the_stack():
    x = Tensor(np.array(1.0), requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    y.backward()
    assert x.grad == 1


def test_numpy_on_the_left_gives_a_tensor():
    x = Tensor(np.ones(3), requires_grad=True)
    for y in (np.arange(3.0) + x, np.arange(3.0) * x, np.arange(3.0) - x, np.float64(2) / x):
        assert isinstance(y, Tensor)
        assert y.shape == (3,)


def test_errors():
    with pytest.raises(ValueError, match="nothing that this tensor was computed from"):
        Tensor(np.array(1.0)).backward()
    x = Tensor(np.ones(3), requires_grad=True)
    with pytest.raises(ValueError, match=r"needs `gradient`, an array of shape \(3,\)"):
        (x * 2).backward()
    with pytest.raises(ValueError, match=r"gradient of shape \(3,\), got \(2,\)"):
        (x * 2).backward(np.ones(2))
    with pytest.raises(TypeError, match="expected an array, got Tensor"):
        Tensor(x)
    with pytest.raises(TypeError, match="expected an array, got list"):
        Tensor([1.0])
    with pytest.raises(TypeError, match="expected a floating-point array, got int64"):
        Tensor(np.arange(3), requires_grad=True)


def test_each_leaf_owns_its_gradient():
    a, b = (Tensor(np.ones(3), requires_grad=True) for _ in "ab")
    ((a + b) ** 2).sum().backward()
    assert not np.shares_memory(a.grad, b.grad)
    x = Tensor(np.ones(3), requires_grad=True)
    seed = np.ones(3)
    (x + 0.0).backward(seed)
    assert not np.shares_memory(x.grad, seed)
    y = Tensor(np.ones(3), requires_grad=True)
    y.sum().backward()
    y.grad *= 2  # a broadcast view would be read-only


def test_a_path_that_gives_no_gradient():
    x = Tensor(np.ones(2), requires_grad=True)
    y = Tensor(np.ones(2), parents=[x * 2], vjp=lambda g: [None])
    y.backward([1.0, 1.0])
    assert x.grad is None


def test_a_number_gets_gradients_by_value_and_by_index():
    """In any order: sums of 0-d arrays are NumPy's numbers, of which no entry can be set."""
    for parts in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
        mean = x.mean()
        terms = [mean, mean * mean, mean[None].sum()]
        total = sum((terms[k] for k in parts[1:]), terms[parts[0]])
        total.backward()
        np.testing.assert_array_equal(x.grad, [2.5, 2.5])


def test_a_gradient_is_an_array_of_its_tensors_dtype():
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    wide = x * np.ones(3)
    for total in (wide.sum(), wide.sum() + x[0:2].sum(), x[0:2].sum() + wide.sum()):
        x.grad = None
        for _ in range(2):
            total.backward(2)
            assert x.grad.dtype == np.float32
    number = Tensor(np.array(3.0), requires_grad=True)
    (number * number).backward()
    assert type(number.grad) is np.ndarray


def test_means_of_half_precision_do_not_overflow():
    x = Tensor(np.full((2, 3000), 30, np.float16), requires_grad=True)
    assert x.mean().data == 30
    assert x.mean(-1).data.tolist() == [30, 30]
    x.mean(-1).sum().backward()
    np.testing.assert_array_equal(x.grad, np.full((2, 3000), np.float16(1 / 3000)))


def test_axes_of_a_transpose_have_to_be_there():
    x = Tensor(np.ones((2, 3)))
    assert x.transpose(-1, 0).shape == (3, 2)
    for axes in ((3, 0), (0, 0), (0,)):
        with pytest.raises(ValueError, match="ax[ei]s"):
            x.transpose(*axes)
