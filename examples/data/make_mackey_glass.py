"""Writes mackey_glass.csv: 1,500 values of the equation of M. C. Mackey and L. Glass, "Oscillation
and chaos in physiological control systems", Science 197 (1977), the density x of blood cells that
are made with a delay:

    dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x(t)

from x = 1.2 before t = 0, by Runge and Kutta's method of 4th order in steps of 0.1; the values are
those of every 6th unit of time from t = 600 on.
"""
import pathlib

STEP, DELAY, EVERY, FIRST, COUNT = 0.1, 170, 60, 6000, 1500


def slope(x, delayed):
    return 0.2 * delayed / (1 + delayed ** 10) - 0.1 * x


x = [1.2] * (DELAY + 1)
while len(x) - DELAY <= FIRST + COUNT * EVERY:
    now, before, after = x[-1], x[-1 - DELAY], x[-DELAY]
    half = (before + after) / 2
    a = slope(now, before)
    b = slope(now + STEP / 2 * a, half)
    c = slope(now + STEP / 2 * b, half)
    d = slope(now + STEP * c, after)
    x.append(now + STEP / 6 * (a + 2 * b + 2 * c + d))
rows = ["x", *("%.6f" % x[DELAY + FIRST + i * EVERY] for i in range(COUNT))]
pathlib.Path(__file__).with_name("mackey_glass.csv").write_text("\n".join(rows) + "\n")
