"""CROWN-BaF for a BERT classifier with ReLU and layer norms without division, in plain PyTorch.

Written as in published implementations: a lower and an upper linear function for each number, and products with the
positive and the negative part of each matrix. The relaxations are those of docs/certify.md, without what seqfuse adds
for rounding. One sentence, one radius; all L2. GraphedCrownBaF replays the same operators as a CUDA graph.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


class Node:
    """lw, uw [K, *shape], lb, ub [*shape]: linear bounds by the K moving numbers. l, u: their values over the ball."""

    def __init__(self, net: "PlainCrownBaF", lines: tuple, parents: list, back, known: tuple | None = None) -> None:
        self.lw, self.uw, self.lb, self.ub = lines
        self.parents, self.back = parents, back
        self.l = self.lb - net.reach(self.lw)
        self.u = self.ub + net.reach(self.uw)
        if known is not None:
            self.l, self.u = torch.maximum(self.l, known[0]), torch.minimum(self.u, known[1])
        net.nodes.append(self)

    @property
    def mid(self) -> Tensor:
        return (self.l + self.u) / 2

    @property
    def rad(self) -> Tensor:
        return (self.u - self.l) / 2

    def lines(self) -> tuple:
        return self.lw, self.uw, self.lb, self.ub


def positive(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def negative(x: Tensor) -> Tensor:
    return x.clamp(max=0)


class PlainCrownBaF:
    def __init__(self, tensors: dict[str, Tensor], heads: int, layers: int) -> None:
        self.t, self.heads, self.layers = tensors, heads, layers

    def reach(self, w: Tensor) -> Tensor:
        return w.unflatten(0, (self.positions, -1)).norm(dim=1).sum(0) * self.eps

    # -- operators ---------------------------------------------------------------------------------------------------
    def linear(self, x: Node, weight: Tensor, bias: Tensor) -> Node:
        plus, minus = positive(weight).T, negative(weight).T
        lines = (
            x.lw @ plus + x.uw @ minus, x.uw @ plus + x.lw @ minus,
            x.lb @ plus + x.ub @ minus + bias, x.ub @ plus + x.lb @ minus + bias,
        )  # fmt: skip
        known = (x.l @ plus + x.u @ minus + bias, x.u @ plus + x.l @ minus + bias)
        return Node(self, lines, [x], lambda a: ([a @ weight], (a * bias).flatten(1).sum(1)), known)

    def named(self, x: Node, name: str) -> Node:
        return self.linear(x, self.t[f"{name}.weight"], self.t[f"{name}.bias"])

    def norm(self, x: Node, name: str) -> Node:
        weight, hidden = self.t[f"{name}.weight"], self.t[f"{name}.weight"].numel()
        center = torch.eye(hidden, dtype=weight.dtype, device=weight.device) - 1 / hidden
        return self.linear(x, center * weight[:, None], self.t[f"{name}.bias"])

    def add(self, x: Node, y: Node) -> Node:
        lines = tuple(a + b for a, b in zip(x.lines(), y.lines()))
        return Node(self, lines, [x, y], lambda a: ([a, a], 0), (x.l + y.l, x.u + y.u))

    def function(self, x: Node, lower: tuple, upper: tuple, known: tuple) -> Node:
        (lk, lc), (uk, uc) = lower, upper
        lines = (
            positive(lk) * x.lw + negative(lk) * x.uw, positive(uk) * x.uw + negative(uk) * x.lw,
            positive(lk) * x.lb + negative(lk) * x.ub + lc, positive(uk) * x.ub + negative(uk) * x.lb + uc,
        )  # fmt: skip

        def back(a: Tensor) -> tuple:
            plus, minus = positive(a), negative(a)
            return [plus * lk + minus * uk], (plus * lc + minus * uc).flatten(1).sum(1)

        return Node(self, lines, [x], back, known)

    def relu(self, x: Node) -> Node:
        on, off = x.l >= 0, x.u <= 0
        one, zero = torch.ones_like(x.l), torch.zeros_like(x.l)
        chord = torch.where(on, one, torch.where(off, zero, x.u / (x.u - x.l).clamp(min=1e-30)))
        offset = torch.where(on | off, zero, -chord * x.l)
        below = torch.where(on, one, torch.where(off, zero, (x.u > -x.l).to(x.l.dtype)))
        return self.function(x, (below, zero), (chord, offset), (x.l.relu(), x.u.relu()))

    def convex(self, x: Node, f, derivative, touch: Tensor, known: tuple) -> Node:
        wide = x.u - x.l > 1e-6 * torch.maximum(x.l.abs(), x.u.abs())
        below = derivative(touch)
        chord = torch.where(wide, (f(x.u) - f(x.l)) / (x.u - x.l), below)
        upper = torch.maximum(f(x.l) - chord * x.l, f(x.u) - chord * x.u)
        return self.function(x, (below, f(touch) - below * touch), (chord, upper), known)

    def tanh(self, x: Node) -> Node:
        share = torch.linspace(0, 1, 257, dtype=x.l.dtype, device=x.l.device).view(-1, 1, 1)
        points = x.l + (x.u - x.l) * share
        values = points.tanh()
        wide = x.u - x.l > 1e-5 * torch.maximum(x.l.abs(), x.u.abs())
        tangent = 1 - x.mid.tanh() ** 2
        to_end = (values[-1] - values[:-1]) / (x.u - points[:-1])
        from_start = (values[1:] - values[0]) / (points[1:] - x.l)
        between = ((x.u - x.l) / 256) ** 2 * 0.76981 / 8

        def best(slopes: list[Tensor], sign: int) -> tuple:
            slopes = torch.stack([slopes[0], *(torch.where(wide, s, tangent) for s in slopes[1:])])
            offsets = (sign * (values - slopes[:, None] * points)).amin(1) - between
            chosen = (sign * slopes * x.mid + offsets).argmax(0, keepdim=True)
            return slopes.gather(0, chosen)[0], sign * offsets.gather(0, chosen)[0]

        lower = best([tangent, to_end.amax(0), from_start.amin(0)], 1)
        upper = best([tangent, to_end.amin(0), from_start.amax(0)], -1)
        return self.function(x, lower, upper, (x.l.tanh(), x.u.tanh()))

    def by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def joined(self, x: Tensor) -> Tensor:
        return x.transpose(-3, -2).flatten(-2)

    def matrix_product(self, x: Node, y: Node, scores: bool) -> Node:
        """Q K^T / sqrt(d) or P V by head."""
        scale = math.sqrt(y.l.shape[-1] // self.heads) if scores else 1.0
        left = self.by_head if scores else (lambda t: t)
        right = (lambda t: self.by_head(t).transpose(-1, -2)) if scores else self.by_head
        out = (lambda t: t) if scores else self.joined
        mx, my, rx, ry = left(x.mid), right(y.mid), left(x.rad), right(y.rad)
        center, around = mx @ my / scale, rx @ ry / scale

        def side(xp: Tensor, xn: Tensor, yp: Tensor, yn: Tensor) -> Tensor:
            of_x = left(xp) @ positive(my) + left(xn) @ negative(my)
            return out((of_x + positive(mx) @ right(yp) + negative(mx) @ right(yn)) / scale)

        lines = (
            side(x.lw, x.uw, y.lw, y.uw), side(x.uw, x.lw, y.uw, y.lw),
            side(x.lb, x.ub, y.lb, y.ub) + out(-center - around), side(x.ub, x.lb, y.ub, y.lb) + out(around - center),
        )  # fmt: skip
        reach = (mx.abs() @ ry + rx @ (my.abs() + ry)) / scale
        known = (out(center - reach), out(center + reach))

        def back(a: Tensor) -> tuple:
            a = a if scores else self.by_head(a)
            ax, ay = a @ my.transpose(-1, -2) / scale, mx.transpose(-1, -2) @ a / scale
            if scores:
                ax, ay = self.joined(ax), ay.transpose(-1, -2)
            constant = (positive(a) * (-center - around) + negative(a) * (around - center)).flatten(1).sum(1)
            return [ax, self.joined(ay)], constant

        return Node(self, lines, [x, y], back, known)

    def product(self, x: Node, y: Node, known: tuple) -> Node:
        """Of each number, where y has one for each row."""
        planes, own_mid, own_rad = x.rad * y.rad, (known[0] + known[1]) / 2, (known[1] - known[0]) / 2
        own = own_rad < planes
        mx, my = torch.where(own, 0, x.mid), torch.where(own, 0, y.mid)
        center, around = torch.where(own, -own_mid, x.mid * y.mid), torch.where(own, own_rad, planes)

        def side(xp: Tensor, xn: Tensor, yp: Tensor, yn: Tensor) -> Tensor:
            return positive(my) * xp + negative(my) * xn + positive(mx) * yp + negative(mx) * yn

        lines = (
            side(x.lw, x.uw, y.lw, y.uw), side(x.uw, x.lw, y.uw, y.lw),
            side(x.lb, x.ub, y.lb, y.ub) - center - around, side(x.ub, x.lb, y.ub, y.lb) - center + around,
        )  # fmt: skip

        def back(a: Tensor) -> tuple:
            constant = (positive(a) * (-center - around) + negative(a) * (around - center)).flatten(1).sum(1)
            return [a * my, (a * mx).sum(-1, keepdim=True)], constant

        return Node(self, lines, [x, y], back, known)

    def softmax(self, scores: Node) -> Node:
        shift = scores.l.amax(-1, keepdim=True)
        touch = torch.minimum(scores.mid, scores.l + 0.99)
        known = ((scores.l - shift).exp(), (scores.u - shift).exp())
        powers = self.convex(scores, lambda x: (x - shift).exp(), lambda x: (x - shift).exp(), touch, known)
        keys = scores.l.shape[-1]
        ones, zero = torch.ones(1, keys, dtype=shift.dtype, device=shift.device), shift.new_zeros(1)
        total = self.linear(powers, ones, zero)
        inverse = self.convex(total, torch.reciprocal, lambda x: -1 / x**2, total.mid, (1 / total.u, 1 / total.l))
        top = scores.u.amax(-1, keepdim=True)
        low, high = (scores.l - top).exp(), (scores.u - top).exp()
        least = low / (low + high.sum(-1, keepdim=True) - high)
        most = high / (high + low.sum(-1, keepdim=True) - low)
        return self.product(powers, inverse, (least, most))

    def layer(self, h: Node, name: str) -> Node:
        q, k, v = (self.named(h, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
        p = self.softmax(self.matrix_product(q, k, scores=True))
        context = self.named(self.matrix_product(p, v, scores=False), f"{name}.attention.output.dense")
        a = self.norm(self.add(context, h), f"{name}.attention.output.LayerNorm")
        inner = self.relu(self.named(a, f"{name}.intermediate.dense"))
        return self.norm(self.add(self.named(inner, f"{name}.output.dense"), a), f"{name}.output.LayerNorm")

    # -- the whole -----------------------------------------------------------------------------------------------------
    def margin(self, ids: Tensor, positions: list[int], eps: float, label: int) -> float:
        """The smallest lower bound of logits[label] - logits[other]. Only CROWN-BaF, without the bound of intervals."""
        return float(self.margin_tensor(ids, positions, eps, label))

    def margin_tensor(self, ids: Tensor, positions: list[int], eps: float | Tensor, label: int) -> Tensor:
        """The same on the device, which nothing waits for."""
        self.positions, self.eps, self.nodes = len(positions), eps, []
        name = "embeddings.{}_embeddings.weight".format
        center = self.t[name("word")][ids] + self.t[name("position")][: len(ids)] + self.t[name("token_type")][0]
        hidden = center.shape[1]
        w = center.new_zeros(len(positions) * hidden, len(ids), hidden)
        for number, position in enumerate(positions):
            w[number * hidden : (number + 1) * hidden, position] = torch.eye(hidden, dtype=w.dtype, device=w.device)
        source = Node(self, (w, w, center, center), [], None)
        h = self.norm(source, "embeddings.LayerNorm")
        for layer in range(self.layers):
            h = self.layer(h, f"encoder.layer.{layer}")
        pooled = self.tanh(self.first(self.named(h, "pooler.dense")))
        classes = len(self.t["classifier.bias"])
        rows = torch.eye(classes, dtype=w.dtype, device=w.device)
        others = [c for c in range(classes) if c != label]
        differences = torch.stack([rows[label] - rows[other] for other in others])
        spec = differences @ self.t["classifier.weight"]
        constant = differences @ self.t["classifier.bias"]
        return self.backward(pooled, spec[:, None], constant, center, positions).min()

    def first(self, x: Node) -> Node:
        """The row of the first token."""
        lines = (x.lw[:, :1], x.uw[:, :1], x.lb[:1], x.ub[:1])
        size = x.lb.shape[0]
        return Node(self, lines, [x], lambda a: ([F.pad(a, (0, 0, 0, size - 1))], 0), (x.l[:1], x.u[:1]))

    def backward(self, node: Node, rows: Tensor, constant: Tensor, center: Tensor, positions: list[int]) -> Tensor:
        """rows [M, *shape of node]."""
        passed = {id(node): rows}
        for current in reversed(self.nodes):
            a = passed.pop(id(current), None)
            if a is None:
                continue
            if current.back is None:
                moving = torch.stack([a[:, position] for position in positions], 1)
                reach = moving.norm(dim=-1).sum(-1) * self.eps
                return constant + (a * center).flatten(1).sum(1) - reach
            parts, more = current.back(a)
            constant = constant + more
            for parent, part in zip(current.parents, parts):
                passed[id(parent)] = passed[id(parent)] + part if id(parent) in passed else part
        raise AssertionError("the input was not reached")


class GraphedCrownBaF:
    """PlainCrownBaF of one sentence, recorded once as a CUDA graph; margin() replays it."""

    def __init__(self, plain: PlainCrownBaF, ids: Tensor, positions: list[int], label: int) -> None:
        weight = plain.t["classifier.weight"]
        self.eps = torch.zeros((), dtype=weight.dtype, device=weight.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                plain.margin_tensor(ids, positions, self.eps, label)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.found = plain.margin_tensor(ids, positions, self.eps, label)

    def margin(self, eps: float) -> float:
        self.eps.fill_(eps)
        self.graph.replay()
        return float(self.found)


def radius_by_bisection(margin, tolerance: float) -> float:
    """As published implementations search: factors of 4 from 0.01, then the geometric middle."""
    low, high, eps = 0.0, math.inf, 0.01
    while high > low * (1 + tolerance):
        if margin(eps) > 0:
            low = eps
        else:
            high = eps
        eps = low * 4 if math.isinf(high) else high / 4 if low == 0 else math.sqrt(low * high)
        if eps < 1e-9:
            break
    return low


def radius_by_secants(margin, tolerance: float) -> float:
    """As seqfuse searches: next where a line through both ends is 0, or the middle if that helped little."""
    low, high, eps = 0.0, math.inf, 0.01
    at_low, at_high, width, guessed = margin(0.0), -math.inf, math.inf, False
    while high > low * (1 + tolerance) and eps >= 1e-9:
        value = margin(eps)
        if value > 0:
            low, at_low = eps, value
        else:
            high, at_high = eps, value
        if math.isinf(high) or low == 0:
            eps = low * 4 if math.isinf(high) else high / 4
            continue
        last, width = width, math.log(high / low)
        guessed = (width <= last / 2 or not guessed) and math.isfinite(at_high)
        if not guessed:
            eps = math.sqrt(low * high)
            continue
        root = low + (high - low) * at_low / (at_low - at_high)
        near, below, above = 0.4 * math.log1p(tolerance), math.log(root / low), math.log(high / root)
        eps = root * math.exp(-near if below > above else near)
        eps = min(max(eps, low * math.exp(below / 2)), high * math.exp(-above / 2))
    return low
