"""Student's t, without a statistics package: its tail from the regularised incomplete beta function."""

import math
from functools import cache

_TINY = 1e-300
_CLOSE = 1e-15


def t_tail(t: float, freedom: float) -> float:
    """P(|T| >= |t|) of Student's t with `freedom` degrees of freedom, freedom > 0 (Abramowitz and Stegun 26.7.1)."""
    if math.isinf(t):
        return 0.0
    return beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


@cache
def t_quantile(level: float, freedom: float) -> float:
    """The t that |T| stays under with probability `level` (0.99 and 10 give 3.169): bisection on the tail."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > 1 - level:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - level else (low, middle)
    return (low + high) / 2


def beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), 0 <= x <= 1, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror converges fast
        return 1 - beta_share(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's method, as modified by Thompson and Barnett (1986)."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            c = 1 + term / c
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value
