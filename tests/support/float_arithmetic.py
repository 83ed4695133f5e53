"""The arithmetic of trig.h and random.h once more in numpy float32, for the slow rules of pursuit."""

from __future__ import annotations

from typing import Any

import numpy as np

f = np.float32
PI, TWO_PI, HALF_PI = f(3.14159274), f(6.28318548), f(1.57079637)
A = Any  # a float32 array


def wrap(angle: A) -> A:
    return np.where(angle >= PI, angle - TWO_PI, np.where(angle < -PI, angle + TWO_PI, angle))


def clip(a: A, low: Any, high: Any) -> A:
    return np.minimum(np.maximum(a, f(low)), f(high))


def hypot(x: A, y: A) -> A:
    return np.sqrt(x * x + y * y)


def sincos(x: A) -> tuple[A, A]:
    quadrant = np.trunc(x * f(0.636619747) + np.where(x < 0, f(-0.5), f(0.5))).astype(np.int32)
    k = quadrant.astype(f)
    r = (x - k * f(1.5703125)) - k * f(4.83826792e-4)
    z = r * r
    s = r + r * z * (f(-0.166666508) + z * (f(8.33197311e-3) + z * f(-1.94949491e-4)))
    c = f(1) - f(0.5) * z + z * z * (f(4.16666456e-2) + z * (f(-1.38873619e-3) + z * f(2.44377279e-5)))
    turn = quadrant % 4
    return np.choose(turn, [s, c, -s, -c]), np.choose(turn, [c, -s, -c, s])


def atan2(y: A, x: A) -> A:
    ax, ay = np.abs(x), np.abs(y)
    large, small = np.maximum(ax, ay), np.minimum(ax, ay)
    t = small / np.where(large > 0, large, f(1))
    z = t * t
    coefficients = (-4.35535703e-3, 2.30399650e-2, -5.77733517e-2, 9.79421809e-2, -0.139765754, 0.199627027)
    p = f(coefficients[0])
    for c in coefficients[1:]:
        p = f(c) + z * p
    angle = t + t * z * (f(-0.333316594) + z * p)
    angle = np.where(ay > ax, HALF_PI - angle, angle)
    angle = np.where(x < 0, PI - angle, angle)
    return np.where(y < 0, -angle, angle)


def log(x: A) -> A:
    """Of positive float32: mantissa to [sqrt 1/2, sqrt 2), then a series."""
    mantissa, exponent = np.frexp(x)  # mantissa in [1/2, 1)
    small = mantissa + mantissa <= f(1.41421354)
    part = np.where(small, mantissa + mantissa, mantissa).astype(f) - f(1)
    s = part / (f(2) + part)
    z = s * s
    series = f(1) + z * (f(1 / 3) + z * (f(0.2) + z * (f(1 / 7) + z * f(1 / 9))))
    return np.where(small, exponent - 1, exponent).astype(f) * f(0.693147182) + f(2) * s * series


def philox(key: int, counter: list[int]) -> list[int]:
    """Philox 4x32-10 (Salmon et al., SC11) in whole numbers."""
    a, b, c, d = counter
    low, high = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ low, q & 0xFFFFFFFF, p >> 32 ^ d ^ high, p & 0xFFFFFFFF
        low, high = low + 0x9E3779B9 & 0xFFFFFFFF, high + 0xBB67AE85 & 0xFFFFFFFF
    return [a, b, c, d]
