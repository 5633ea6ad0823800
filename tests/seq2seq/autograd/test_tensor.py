"""The tape itself: what is recorded, how gradients add up, and what is refused."""

import numpy as np
import pytest

from pyentmax.seq2seq.autograd import Tensor


def test_constants_are_not_recorded():
    y = Tensor(np.ones(3)) * 2 + 1
    assert (y.requires_grad, y.parents) == (False, ())
    x = Tensor(np.ones(3), requires_grad=True)
    assert [parent for parent, _ in (x * y).parents] == [x]


def test_gradients_of_all_uses_and_passes_add():
    # The gradient of a sum goes to both terms as one array.
    x, y = (Tensor(np.ones(2), requires_grad=True) for _ in "xy")
    total = ((x + y) + x * x * 5).sum()
    for times in (1, 2):
        total.backward()
        np.testing.assert_array_equal(x.grad, [11 * times] * 2)
        np.testing.assert_array_equal(y.grad, [times] * 2)


def test_each_leaf_owns_its_gradient():
    a, b = (Tensor(np.ones(3), requires_grad=True) for _ in "ab")
    ((a + b) ** 2).sum().backward()
    assert not np.shares_memory(a.grad, b.grad)
    gradient = np.ones(3)
    c = Tensor(np.ones(3), requires_grad=True)
    (c + 0.0).backward(gradient)
    assert not np.shares_memory(c.grad, gradient)
    c.sum().backward()
    c.grad *= 2  # a broadcast view would be read-only


def test_parents_may_share_one_vjp():
    x, y = (Tensor(np.array([1.0, 2.0]), requires_grad=True) for _ in "xy")
    constant = Tensor(np.ones(2))

    def vjp(g):
        return g * y.data, g * x.data, g

    z = Tensor(x.data * y.data, ((x, y, constant), vjp))
    (z + x).sum().backward()
    np.testing.assert_array_equal(x.grad, [2, 3])
    np.testing.assert_array_equal(y.grad, [1, 2])
    assert constant.grad is None


def test_long_chains_do_not_exhaust_the_stack():
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


def test_gradients_have_the_dtype_of_their_leaf():
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    wide = x * np.ones(3)
    (wide.sum() + x[0:2].sum()).backward(2)
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
    for axes in ((3, 0), (0, 0), (0,)):
        with pytest.raises(ValueError, match="ax[ei]s"):
            Tensor(np.ones((2, 3))).transpose(*axes)


def test_numpy_functions_name_the_tape():
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    for call in (
        lambda: np.sum(x),
        lambda: np.where(True, x[0], 0),
        lambda: np.dot(x[0], np.ones(3)),
        lambda: np.concatenate([x, x]),
    ):
        with pytest.raises(TypeError, match=r"takes no Tensor.*pyentmax\.seq2seq\.autograd"):
            call()
    for call in (lambda: np.array(x), lambda: np.asarray([x, x])):
        with pytest.raises(TypeError, match=r"Tensor is not an array; its \.data is"):
            call()


def test_tensors_of_one_element_are_numbers():
    x = Tensor(np.array([[2.5]]), requires_grad=True)
    assert (float(x), bool(x), bool(x * 0), f"{x:.2f}") == (2.5, True, False, "2.50")
    assert f"{x}" == str(x)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(Tensor(np.ones(2)))


@pytest.mark.parametrize("axes", [(2, 0, 1), [2, 0, 1], np.array([2, 0, 1]), (-1, 0, 1), None])
def test_transpose_takes_axes_in_one_argument(axes):
    x = Tensor(np.arange(24.0).reshape(2, 3, 4), requires_grad=True)
    y, g = x.transpose(axes), np.random.default_rng(0).normal(size=x.data.transpose(axes).shape)
    np.testing.assert_array_equal(y.data, x.data.transpose(axes))
    (y * g).sum().backward()
    np.testing.assert_array_equal(x.grad.transpose(axes), g)
