"""Every operation on the tape against central differences in float64."""

from operator import add, mul, sub, truediv

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax import autograd as ag
from pyentmax.autograd import Tensor, ops

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
        lambda x: x.mean(axis=1),
        lambda x: x.reshape(2, 6),
        lambda x: x.transpose(),
        lambda x: x.reshape(3, 2, 2).transpose(2, 0, -2),
        lambda x: x.reshape(3, 2, 2).swapaxes(0, -1),
        lambda x: x[1],
        lambda x: x[:, 1:3] * x[None, ..., 0:2],
        lambda x: x[0] * x[0] + x[2],
        lambda x: ag.concatenate([x, x * x, x[:, :1]], axis=1),
        lambda x: ag.concatenate([x, x * x], axis=0),
        lambda x: ag.stack([x, x * x, x]),
        lambda x: ag.take_rows(x, np.array([[2, 0], [2, 2]])),
    ],
)
def test_one_operand(function):
    assert_gradients(function, normal(3, 4))


@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((5, 3, 4), (4, 2)), ((1, 3, 4), (5, 4, 2))])
def test_matmul(shapes):
    assert_gradients(ops.matmul, *(normal(*shape) for shape in shapes))


@pytest.mark.parametrize("rows", [(3,), (2, 3), ()])
def test_linear(rows):
    assert_gradients(ops.linear, normal(*rows, 4), normal(4, 2), normal(2))
    assert_gradients(ops.linear, normal(*rows, 4), normal(4, 2))


def test_a_weight_used_at_many_steps_gets_the_sum():
    def function(x, w):
        for _ in range(4):
            x = ag.tanh(ag.linear(x, w))
        return x @ w + w[0]

    assert_gradients(function, normal(2, 3), normal(3, 3))


def test_dropout_keeps_the_expectation_and_differentiates_the_kept():
    x = Tensor(np.ones((200, 500)), requires_grad=True)
    y = ag.dropout(x, 0.3, np.random.default_rng(0))
    assert set(np.unique(y.data)) == {0, 1 / 0.7}
    np.testing.assert_allclose(y.data.mean(), 1, rtol=0, atol=0.01)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, y.data)
    again = ag.dropout(x, 0.3, np.random.default_rng(0))
    np.testing.assert_array_equal(again.data, y.data)
    assert ag.dropout(x, 0.3, None) is x
    with pytest.raises(ValueError, match=r"dropout: expected a rate in \[0, 1\), got 1"):
        ag.dropout(x, 1, None)


def test_dropout_takes_an_array():
    y = ag.dropout(np.ones(6), 0.5, np.random.default_rng(0))
    assert set(y.data.tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("join", [ag.concatenate, ag.stack])
def test_nothing_cannot_be_joined(join):
    with pytest.raises(ValueError, match="tensors: expected at least one to join, got none"):
        join([])


def test_dropout_of_float32_stays_float32():
    y = ag.dropout(Tensor(np.ones(8, np.float32)), 0.5, np.random.default_rng(0))
    assert y.dtype == np.float32


def test_numbers_do_not_widen_float32():
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    y = (2 * x + 1.5) / 3 - x.mean()
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad.dtype == np.float32


def test_integers_are_not_truncated():
    np.testing.assert_array_equal((Tensor(np.array([1, 2])) * 0.5).data, [0.5, 1.0])
    np.testing.assert_array_equal((0.5 + Tensor(np.array([1, 2]))).data, [1.5, 2.5])


def test_edges():
    x = Tensor(np.array([0.0, 2.0]), requires_grad=True)
    (x**0).sum().backward()
    np.testing.assert_array_equal(x.grad, [0, 0])
    assert x.reshape((2, 1)).transpose((1, 0)).shape == (1, 2)
    assert ag.take_rows(Tensor(np.ones((3, 2))), [0, 2]).shape == (2, 2)
    assert ag.entmax15(np.zeros(4)).data.sum() == 1
    with pytest.raises(ValueError, match="mean: expected at least one element"):
        Tensor(np.ones((0, 3))).mean()


def test_sigmoid_neither_overflows_nor_warns():
    with np.errstate(all="raise"):
        y = ag.sigmoid(Tensor(np.array([-1e4, 0, 1e4])))
    np.testing.assert_array_equal(y.data, [0, 0.5, 1])


def test_indexing_with_an_array_is_refused():
    x = Tensor(np.ones(3), requires_grad=True)
    with pytest.raises(TypeError, match="take_rows"):
        x[np.array([0, 0])]
    with pytest.raises(TypeError, match="take_rows"):
        x[[0, 0]]


def test_vectors_are_refused_by_matmul():
    with pytest.raises(ValueError, match=r"shapes \(3,\) and \(3, 2\)"):
        Tensor(np.ones(3)) @ Tensor(np.ones((3, 2)))


@pytest.mark.parametrize("index", [[-1, 2], [[0, -3], [2, -1]], np.array([1, 1], np.uint8), [2]])
def test_one_row_by_two_indices_gets_both_gradients(index):
    table = ag.Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    taken = ag.take_rows(table, index)
    taken.backward(np.arange(1.0, taken.data.size + 1).reshape(taken.shape))
    expected = np.zeros((3, 2))
    np.add.at(expected, np.asarray(index), np.arange(1.0, taken.data.size + 1).reshape(taken.shape))
    np.testing.assert_array_equal(table.grad, expected)


@pytest.mark.parametrize("shape", [(3, 0), (3, 2, 0)])
@pytest.mark.parametrize("index", [[0, 2], [], [[1, 1]]], ids=str)
def test_rows_without_entries_have_a_gradient_of_their_shape(shape, index):
    table = ag.Tensor(np.zeros(shape), requires_grad=True)
    ag.take_rows(table, np.array(index, int)).sum().backward()
    assert table.grad.shape == shape


@pytest.mark.parametrize("index", [((0, 0),), True, (slice(None), False), [0, 0], np.array([0])])
def test_an_index_that_could_repeat_is_refused(index):
    with pytest.raises(TypeError, match="indexing a Tensor with an array, a sequence or a bool"):
        ag.Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)[index]
    if not isinstance(index, tuple | list | np.ndarray):
        with pytest.raises(TypeError, match="index: expected integers, got an array of bool"):
            ag.take_rows(np.ones((3, 2)), index)


@pytest.mark.parametrize(
    "index", [-1, np.int64(1), None, ..., (..., -1), (None, -2, slice(None, None, -1)), slice(0, 0)]
)
def test_the_gradient_of_a_part(index):
    x = ag.Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    part = x[index]
    (part * part).sum().backward()
    expected = np.zeros((3, 2))
    expected[index] = 2 * x.data[index]
    np.testing.assert_array_equal(x.grad, expected)


@pytest.mark.parametrize("function", [ag.linear, ag.linear_by_rows])
def test_linear_without_features_or_outputs(function):
    for rows, n, m in ((2, 0, 3), (2, 3, 0), (0, 3, 2)):
        x = Tensor(np.ones((rows, n)), requires_grad=True)
        weight = Tensor(np.ones((n, m) if function is ag.linear else (m, n)), requires_grad=True)
        bias = Tensor(np.ones(m), requires_grad=True)
        function(x, weight, bias).sum().backward()
        np.testing.assert_array_equal(x.grad, np.full((rows, n), m))
        np.testing.assert_array_equal(weight.grad, np.full(weight.shape, rows))
        np.testing.assert_array_equal(bias.grad, np.full(m, rows))


@pytest.mark.parametrize("shape", [(), (1,), (2, 1), (2, 3), (2,)])
@pytest.mark.parametrize("function", [ag.linear, ag.linear_by_rows])
def test_the_bias_is_one_number_per_output(function, shape):
    weight = np.ones((2, 3) if function is ag.linear else (3, 2))
    with pytest.raises(ValueError, match=r"bias: expected shape \(3,\), got"):
        function(np.ones((2, 2)), weight, np.ones(shape))
