"""Print the coefficients of the C kernels' polynomials, highest power first, and their errors.

    python tools/kernel_coefficients.py

They stand in `cython_ext/elementary/exp.h` and `log.h`. The exponential's is the best of its degree
by Remez' algorithm, since its error counts of e^r; the others are Chebyshev's, which lack little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpmath import atanh, chebyfit, cos, exp, expm1, log, lu_solve, matrix, mp, mpf, polyval, sqrt

mp.dps = 40
Function = Callable[[Any], Any]


def remez(f: Function, weight: Function, end: Any, count: int) -> tuple[list[Any], Any]:
    """The polynomial P of `count` coefficients with the least max weight |P - f| on [-end, end]."""
    # as many points as unknowns, the error among them; one is left out of an even number, so that
    # none is 0, where the weight is
    nodes = [-end * cos(mp.pi * (i + mpf(1) / 2) / (count + 2)) for i in range(count + 2)]
    points = nodes[:1] + nodes[2:] if count % 2 == 0 else [x for x in nodes if abs(x) > 1e-9]
    grid = [end * (mpf(i) / 500 - 1) for i in range(1001) if i != 500]
    for _ in range(8):
        system, values = matrix(count + 1, count + 1), matrix(count + 1, 1)
        for i, x in enumerate(points):
            for power in range(count):
                system[i, power] = x**power
            system[i, count] = (-1) ** i / weight(x)
            values[i] = f(x)
        found = list(lu_solve(system, values))[:count][::-1]
        error = [weight(x) * (polyval(found, x) - f(x)) for x in grid]
        # the largest error of each run of one sign
        best: list[int] = []
        for i, e in enumerate(error):
            if best and (error[best[-1]] > 0) == (e > 0):
                best[-1] = max(best[-1], i, key=lambda j: abs(error[j]))
            else:
                best.append(i)
        while len(best) > count + 1:
            best.pop(0 if abs(error[best[0]]) < abs(error[best[-1]]) else -1)
        points = [grid[i] for i in best]
    return found, max(abs(e) for e in error)


def slope(g: Any) -> Any:
    return expm1(g * log(2)) / g if g else log(2)


def of_1_plus(f: Any) -> Any:
    return log(1 + f, 2) / f if f else 1 / log(2)


def of_square(q: Any) -> Any:
    return 2 * atanh(sqrt(q)) / sqrt(q) / log(2) if q else 2 / log(2)


def rest(r: Any) -> Any:
    return (exp(r) - 1 - r) / r**2


def share(r: Any) -> Any:
    return r**2 / exp(r)


def polynomials() -> dict[str, tuple[list[Any], Any]]:
    """Coefficients and largest error, by what they stand for."""
    half, low, high = mpf(1) / 2, 1 / sqrt(2) - 1, sqrt(2) - 1
    largest = (high / (high + 2)) ** 2
    chebyshev = {
        "(2^g - 1)/g, float": (slope, [-half, half], 5),
        "(2^g - 1)/g, double": (slope, [-half, half], 11),
        "log2(1 + f)/f, float": (of_1_plus, [low, high], 8),
        "2 artanh(a)/(a log 2) in a^2, double": (of_square, [0, largest], 8),
    }
    return {
        "(e^r - 1 - r)/r^2, float": remez(rest, share, log(2) / 2, 5),
        "(e^r - 1 - r)/r^2, double": remez(rest, share, log(2) / 2, 10),
        **{
            name: chebyfit(f, interval, count, error=True)
            for name, (f, interval, count) in chebyshev.items()
        },
    }


if __name__ == "__main__":
    for name, (found, error) in polynomials().items():
        print(f"{name}: error {mp.nstr(error, 2)}")
        for x in found:
            print(f"    {mp.nstr(x, 18)}")
