"""Every operation on the tape against central differences in float64."""

from operator import add, mul, sub, truediv

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax.seq2seq import autograd as ag
from pyentmax.seq2seq.autograd import Tensor

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (2, 1, 4)), ((), (2, 3))]
)
@pytest.mark.parametrize("op", [add, sub, mul, truediv])
def test_arithmetic_broadcasts(op, shapes):
    a, b = (normal(*shape) for shape in shapes)
    assert_gradients(op, a, b + 3 * np.sign(b))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 2 - x,
        lambda x: 2 / (x + 10),
        lambda x: x - 1.5,
        lambda x: -x,
        lambda x: (x + 10) ** 3,
        lambda x: (x + 10) ** -0.5,
        lambda x: (x - x) ** 0 + (x - x) ** np.float32(1),
        lambda x: 3 * x * np.arange(4.0),
        lambda x: np.ones((2, 3, 4)) * x,
        lambda x: np.ones((2, 3)) @ x,
        lambda x: ag.exp(x),
        lambda x: ag.log(x + 10),
        lambda x: ag.tanh(x),
        lambda x: ag.sigmoid(x),
        lambda x: ag.relu(x),
        lambda x: x.sum(),
        lambda x: x.sum(axis=0),
        lambda x: x.sum(axis=(0, -1), keepdims=True),
        lambda x: x.mean(),
        lambda x: x.mean(axis=1),
        lambda x: x.reshape(2, 6),
        lambda x: x.reshape((2, 6)),
        lambda x: x.transpose(),
        lambda x: x.reshape(3, 2, 2).transpose(2, 0, -2),
        lambda x: x.reshape(3, 2, 2).swapaxes(0, -1),
        lambda x: x[1],
        lambda x: x[np.int64(1), None, -1],
        lambda x: x[:, 1:3] * x[None, ..., 0:2],
        lambda x: x[0] * x[0] + x[2],
        lambda x: x[::-1] * x[0:0].sum(),
        lambda x: sum((k * row * row for k, row in enumerate(x)), 0),
        lambda x: ag.concatenate([x, x * x, x[:, :1]], axis=1),
        lambda x: ag.concatenate([x, x * x], axis=0),
        lambda x: ag.stack([x, x * x, x]),
        lambda x: ag.take_rows(x, np.array([[2, 0], [2, -1]], np.int8)),
    ],
)
def test_one_operand(function):
    assert_gradients(function, normal(3, 4))


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (4, 2)),
        ((5, 3, 4), (4, 2)),
        ((1, 3, 4), (5, 4, 2)),
        ((4,), (4, 2)),
        ((3, 4), (4,)),
        ((4,), (4,)),
    ],
)
def test_matrix_product(shapes):
    assert_gradients(lambda a, b: a @ b, *(normal(*shape) for shape in shapes))


@pytest.mark.parametrize("rows", [(3,), (2, 3), ()])
def test_linear(rows):
    assert_gradients(ag.linear, normal(*rows, 4), normal(4, 2), normal(2))
    assert_gradients(ag.linear, normal(*rows, 4), normal(4, 2))
    assert_gradients(
        lambda x, table: ag.linear(x, table.transpose()), normal(*rows, 4), normal(2, 4)
    )


def test_dropout():
    x = Tensor(np.ones((200, 500)), requires_grad=True)
    y = ag.dropout(x, 0.3, np.random.default_rng(0))
    assert set(np.unique(y.data)) == {0, 1 / 0.7}
    np.testing.assert_allclose(y.data.mean(), 1, rtol=0, atol=0.01)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, y.data)
    again = ag.dropout(x.data.astype(np.float32), 0.3, np.random.default_rng(0))
    np.testing.assert_array_equal(again.data > 0, y.data > 0)
    assert again.dtype == np.float32
    assert ag.dropout(x, 0.3, None) is x
    with pytest.raises(ValueError, match=r"dropout: expected a rate in \[0, 1\), got 1"):
        ag.dropout(x, 1, None)


def test_numbers_keep_float32():
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    y = (2 * x + 1.5) / 3 - x.mean() + 2 / x
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad.dtype == np.float32


@pytest.mark.parametrize("exponent", [np.array([2.0, -1.0]), Tensor(np.array(2.0)), [1, 2]])
def test_exponents_that_are_not_numbers_are_refused(exponent):
    with pytest.raises(TypeError, match="exponent: expected a number, got"):
        Tensor(np.ones(2)) ** exponent


def test_sigmoid_neither_overflows_nor_warns():
    with np.errstate(all="raise"):
        y = ag.sigmoid(Tensor(np.array([-1e4, 0, 1e4])))
    np.testing.assert_array_equal(y.data, [0, 0.5, 1])


@pytest.mark.parametrize("index", [((0, 0),), [0, 0], np.array([0]), (slice(None), [1])])
def test_indexing_with_an_array_is_refused(index):
    with pytest.raises(TypeError, match="expected integers, slices.*use pyentmax.*take_rows"):
        Tensor(np.ones((3, 2)), requires_grad=True)[index]


@pytest.mark.parametrize("index", [[-1, 2], [[0, -3], [2, -1]], np.array([1, 1], np.uint8), [[]]])
def test_take_rows_sums_over_repeated_rows(index):
    index = np.asarray(index, None if np.size(index) else int)
    table = Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    taken = ag.take_rows(table, index)
    gradient = np.arange(1.0, taken.data.size + 1).reshape(taken.shape)
    taken.backward(gradient)
    expected = np.zeros((3, 2))
    np.add.at(expected, index, gradient)
    np.testing.assert_array_equal(table.grad, expected)
    with pytest.raises(TypeError, match="index: expected integers, got an array of bool"):
        ag.take_rows(table, [True, False, True])
