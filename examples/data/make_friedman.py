"""Writes friedman.csv: the function "Friedman #1" (J. H. Friedman, Multivariate Adaptive Regression Splines,
The Annals of Statistics 19, 1991) of five of ten uniform columns, with normal noise of deviation 1."""
import math
import pathlib
import random

random.seed(1991)
rows = ["x1,x2,x3,x4,x5,x6,x7,x8,x9,x10,y"]
for _ in range(1500):
    x = [round(random.random(), 4) for _ in range(10)]
    y = (10 * math.sin(math.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4] + random.gauss(0, 1))
    rows.append(",".join(f"{v:.4f}" for v in [*x, y]))
pathlib.Path(__file__).with_name("friedman.csv").write_text("\n".join(rows) + "\n")
