#!/usr/bin/env python3
"""Writes hstu_layer.json: one HSTU layer in double, forward and all gradients, directly from the formulae.

Standard library only. Inputs are sin(0.37 k + 0.11), k = 0, 1, ..., in the order in which they are drawn
below. Every gradient is checked against central differences before it is written.

    python3 tests/golden/make_hstu_golden.py
"""

import json
import math
import pathlib

D, H, HEAD = 6, 2, 3
HD = H * HEAD
LENGTH, CONTEXTS, TARGETS = 7, 2, 2
SCALING, ALPHA, EPS = 16, 1 / math.sqrt(HEAD), 1e-5


class Source:
    def __init__(self):
        self.k = 0

    def __call__(self):
        self.k += 1
        return math.sin(0.37 * (self.k - 1) + 0.11)

    def matrix(self, rows, columns, scale=1.0, shift=0.0):
        return [[shift + scale * self() for _ in range(columns)] for _ in range(rows)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def silu_slope(x):
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)))


def transposed(a):
    return [list(column) for column in zip(*a)]


def product(a, b):
    columns = transposed(b)
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def visible(i, j):
    """Context rows see context and history; others are causal; targets never see each other."""
    history_end = LENGTH - TARGETS
    if i < CONTEXTS:
        return j < history_end
    if j > i:
        return False
    return not (i >= history_end and j >= history_end and i != j)


def norm_rows(rows, weight, bias):
    out, unit, scales = [], [], []
    for row in rows:
        mean = sum(row) / len(row)
        scale = 1 / math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + EPS)
        unit.append([(x - mean) * scale for x in row])
        scales.append(scale)
        out.append([u * w + b for u, w, b in zip(unit[-1], weight, bias)])
    return out, unit, scales


def norm_rows_backward(gradient, unit, scales, weight):
    dx = []
    for row, u, scale in zip(gradient, unit, scales):
        g = [a * w for a, w in zip(row, weight)]
        mean = sum(g) / len(g)
        along = sum(a * b for a, b in zip(g, u)) / len(g)
        dx.append([scale * (a - mean - b * along) for a, b in zip(g, u)])
    columns = range(len(weight))
    dweight = [sum(g[e] * u[e] for g, u in zip(gradient, unit)) for e in columns]
    dbias = [sum(g[e] for g in gradient) for e in columns]
    return dx, dweight, dbias


def forward(p):
    n, n_unit, n_scale = norm_rows(p["x"], p["input_norm_weight"], p["input_norm_bias"])
    z = [[a + b for a, b in zip(row, p["uvqk_bias"])] for row in product(n, p["uvqk_weight"])]
    m = [[silu(a) for a in row] for row in z]
    u, v, q, k = ([row[part * HD : (part + 1) * HD] for row in m] for part in range(4))
    logits = {}
    o = [[0.0] * HD for _ in range(LENGTH)]
    for h in range(H):
        lanes = range(h * HEAD, (h + 1) * HEAD)
        for i in range(LENGTH):
            for j in range(LENGTH):
                if not visible(i, j):
                    continue
                s = ALPHA * sum(q[i][e] * k[j][e] for e in lanes)
                logits[h, i, j] = s
                for e in lanes:
                    o[i][e] += silu(s) / SCALING * v[j][e]
    gate, o_unit, o_scale = norm_rows(o, p["output_norm_weight"], p["output_norm_bias"])
    y = [[a * b for a, b in zip(r, s)] for r, s in zip(u, gate)]
    out = [[a + b for a, b in zip(r, s)] for r, s in zip(product(y, p["output_weight"]), p["x"])]
    saved = dict(n=n, n_unit=n_unit, n_scale=n_scale, z=z, u=u, v=v, q=q, k=k, logits=logits, gate=gate)
    return out, dict(saved, o_unit=o_unit, o_scale=o_scale, y=y)


def backward(p, c, dout):
    dy = product(dout, transposed(p["output_weight"]))
    du = [[a * b for a, b in zip(r, s)] for r, s in zip(dy, c["gate"])]
    dgate = [[a * b for a, b in zip(r, s)] for r, s in zip(dy, c["u"])]
    do, d_norm_weight, d_norm_bias = norm_rows_backward(dgate, c["o_unit"], c["o_scale"], p["output_norm_weight"])
    dq, dk, dv = ([[0.0] * HD for _ in range(LENGTH)] for _ in range(3))
    for (h, i, j), s in c["logits"].items():
        lanes = range(h * HEAD, (h + 1) * HEAD)
        da = sum(do[i][e] * c["v"][j][e] for e in lanes)
        ds = da * silu_slope(s) / SCALING * ALPHA
        for e in lanes:
            dv[j][e] += silu(s) / SCALING * do[i][e]
            dq[i][e] += ds * c["k"][j][e]
            dk[j][e] += ds * c["q"][i][e]
    dm = [a + b + cc + d for a, b, cc, d in zip(du, dv, dq, dk)]
    dz = [[g * silu_slope(z) for g, z in zip(r, s)] for r, s in zip(dm, c["z"])]
    dn = product(dz, transposed(p["uvqk_weight"]))
    dx, d_in_weight, d_in_bias = norm_rows_backward(dn, c["n_unit"], c["n_scale"], p["input_norm_weight"])
    return {
        "x": [[a + b for a, b in zip(r, s)] for r, s in zip(dx, dout)],
        "uvqk_weight": product(transposed(c["n"]), dz),
        "uvqk_bias": [sum(row[e] for row in dz) for e in range(4 * HD)],
        "output_weight": product(transposed(c["y"]), dout),
        "input_norm_weight": d_in_weight,
        "input_norm_bias": d_in_bias,
        "output_norm_weight": d_norm_weight,
        "output_norm_bias": d_norm_bias,
    }


def check_gradients(p, dout, gradients, step=1e-5):
    def loss():
        return sum(a * b for r, s in zip(forward(p)[0], dout) for a, b in zip(r, s))

    worst = 0.0
    for name, gradient in gradients.items():
        rows = p[name] if isinstance(p[name][0], list) else [p[name]]
        expected = gradient if isinstance(gradient[0], list) else [gradient]
        for row, values in zip(rows, expected):
            for e, value in enumerate(values):
                kept = row[e]
                row[e] = kept + step
                high = loss()
                row[e] = kept - step
                low = loss()
                row[e] = kept
                worst = max(worst, abs((high - low) / (2 * step) - value) / (1 + abs(value)))
    if worst > 1e-7:
        raise SystemExit(f"a gradient is wrong: off by {worst}")
    return worst


def main():
    source = Source()
    p = {"x": source.matrix(LENGTH, D), "uvqk_weight": source.matrix(D, 4 * HD, 0.5)}
    p["uvqk_bias"] = source.matrix(1, 4 * HD, 0.1)[0]
    p["output_weight"] = source.matrix(HD, D, 0.5)
    for name, width in (("input_norm", D), ("output_norm", HD)):
        p[f"{name}_weight"] = source.matrix(1, width, 0.1, 1.0)[0]
        p[f"{name}_bias"] = source.matrix(1, width, 0.1)[0]
    dout = source.matrix(LENGTH, D)
    out, saved = forward(p)
    gradients = backward(p, saved, dout)
    worst = check_gradients(p, dout, gradients)
    golden = {
        "hidden_size": D,
        "num_heads": H,
        "head_dim": HEAD,
        "num_contexts": CONTEXTS,
        "num_targets": TARGETS,
        "scaling_seqlen": SCALING,
        "norm_epsilon": EPS,
        "inputs": p,
        "out": out,
        "grad_out": dout,
        "gradients": gradients,
    }
    file = pathlib.Path(__file__).with_name("hstu_layer.json")
    file.write_text(json.dumps(golden) + "\n")
    print(f"{file.name}: gradients agree with central differences to {worst:.1e}")


if __name__ == "__main__":
    main()
