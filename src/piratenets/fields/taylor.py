"""Derivatives of any callable in one forward Taylor pass.

A truncated multivariate Taylor polynomial is a dict from multi-indices to coefficients:
f(x0 + h) = sum_a f_a h^a with f_a = D^a f(x0) / a!. Only indices in a *downward closed*
set matter to the wanted ones: u.t and u.xx need {1, t, x, xx}; that set, and nothing else,
is carried through the function. A missing index is a coefficient that is exactly zero, so
a coordinate costs nothing where it does not enter.

The function is traced to a jaxpr once and its primitives are evaluated on polynomials:
linear ones act on each coefficient, products are Cauchy products, and an elementwise
nonlinearity g acts as sum_k g^(k)(x0)/k! h^k with h the polynomial less its constant.
Where a primitive has no rule (loops, branches), nested forward differentiation gives the
same numbers more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from piratenets.problems.unknown import Index

Polynomial = dict[Index, Any]


class _NoRule(Exception):
    """A primitive that Taylor polynomials cannot be pushed through here."""


def downward_closure(indices: Iterable[Index]) -> tuple[Index, ...]:
    """The given multi-indices and all below them, by total degree."""
    closed: set[Index] = set()
    pending = list(indices)
    while pending:
        index = pending.pop()
        if index in closed:
            continue
        closed.add(index)
        for i, n in enumerate(index):
            if n:
                pending.append((*index[:i], n - 1, *index[i + 1 :]))
    return tuple(sorted(closed, key=lambda a: (sum(a), a)))


def derivatives(function: Callable[[Any], Any], point: Any,
                wanted: Iterable[Index]) -> dict[Index, Any]:
    """D^a function(point) for every wanted multi-index a (and those below them).

    `function` maps one point, shape (d,), to an array. Batch with `jax.vmap`.
    """
    indices = downward_closure([(0,) * point.shape[0], *wanted])
    closed_jaxpr = jax.make_jaxpr(function)(point)
    try:
        polynomial = _Pass(indices).run(closed_jaxpr.jaxpr, closed_jaxpr.consts,
                                        [_coordinates(point, indices)])[0]
    except _NoRule:
        return {a: _nested(function, point, a) for a in indices}
    shape = closed_jaxpr.out_avals[0]
    zero = jnp.zeros(shape.shape, shape.dtype)
    return {a: _scaled(polynomial.get(a, zero), a) for a in indices}


def _scaled(coefficient: Any, index: Index) -> Any:
    factor = math.prod(math.factorial(n) for n in index)
    return coefficient if factor == 1 else coefficient * factor


def _coordinates(point: Any, indices: Sequence[Index]) -> Polynomial:
    """The identity as a polynomial: x0 plus one unit vector in each direction used."""
    polynomial: Polynomial = {(0,) * point.shape[0]: point}
    for index in indices:
        if sum(index) == 1:
            polynomial[index] = jnp.asarray(index, point.dtype)
    return polynomial


def _nested(function: Callable[[Any], Any], point: Any, index: Index) -> Any:
    """D^index by nesting forward-mode differentiation: always right, exponential cost."""
    for i, n in enumerate(index):
        direction = jnp.zeros_like(point).at[i].set(1.0)
        for _ in range(n):
            function = _directional(function, direction)
    return function(point)


def _directional(function: Callable[[Any], Any], direction: Any) -> Callable[[Any], Any]:
    return lambda x: jax.jvp(function, (x,), (direction,))[1]


class _Pass:
    """Evaluates a jaxpr on Taylor polynomials truncated to a downward closed index set."""

    def __init__(self, indices: Sequence[Index]) -> None:
        self.indices = indices
        self.zero = indices[0]
        self.degree = max(sum(a) for a in indices)
        # For every index, the ways to write it as a sum of two: the Cauchy product's terms.
        self.splits = {a: [(b, tuple(i - j for i, j in zip(a, b, strict=True)))
                           for b in indices if all(j <= i for i, j in zip(a, b, strict=True))]
                       for a in indices}

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Polynomial]
            ) -> list[Polynomial]:
        values: dict[Any, Polynomial] = {}

        def read(atom: Any) -> Polynomial:
            if isinstance(atom, jax_core.Literal):
                return {self.zero: atom.val}
            return values[atom]

        values.update(zip(jaxpr.constvars, ({self.zero: c} for c in consts), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            results = self.apply(equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def apply(self, equation: Any, inputs: list[Polynomial]) -> list[Polynomial]:
        primitive, parameters, name = equation.primitive, equation.params, equation.primitive.name
        if all(set(p) <= {self.zero} for p in inputs):
            return [{self.zero: o} for o in _evaluated(equation, [p[self.zero] for p in inputs])]
        inner = _inner_jaxpr(parameters) if name in _CALLS else None
        if inner is not None:
            return self.run(inner.jaxpr, inner.consts, inputs)

        def bind(*operands: Any) -> Any:
            return primitive.bind(*operands, **parameters)

        if name in _PIECEWISE_CONSTANT or _rounds(name, parameters):
            return [{self.zero: bind(*(p[self.zero] for p in inputs))}]
        if name in _LINEAR:
            return [self.linear(bind, inputs)]
        if name in _BILINEAR:
            return [self.product(bind, *inputs)]
        if name == "div":
            reciprocal = self.compose(_generic(lambda x: lax.integer_pow(x, -1)), inputs[1])
            return [self.product(lax.mul, inputs[0], reciprocal)]
        if name in ("square", "integer_pow"):
            exponent = parameters.get("y", 2)
            return [self.power(inputs[0], exponent)]
        if name == "pow" and set(inputs[1]) == {self.zero}:
            exponent = inputs[1][self.zero]
            return [self.compose(_generic(lambda x: lax.pow(x, exponent)), inputs[0])]
        if name == "select_n" and set(inputs[0]) == {self.zero}:
            which = inputs[0][self.zero]
            return [self.linear(lambda *cases: bind(which, *cases), inputs[1:])]
        if name in ("max", "min"):
            first = (lax.ge if name == "max" else lax.le)(*(p[self.zero] for p in inputs))
            return [self.linear(lambda a, b: jnp.where(first, a, b), inputs)]
        if name in _INDEXING and all(set(p) == {self.zero} for p in inputs[1:]):
            where = [p[self.zero] for p in inputs[1:]]
            return [self.linear(lambda x: bind(x, *where), inputs[:1])]
        if name in _ELEMENTWISE and len(inputs) == 1:
            return [self.compose(_RULES.get(name) or _generic(bind), inputs[0])]
        raise _NoRule(name)

    def linear(self, bind: Callable[..., Any], inputs: Sequence[Polynomial]) -> Polynomial:
        """A primitive that is linear in all its operands together."""
        present = [a for a in self.indices if any(a in p for p in inputs)]
        return {a: bind(*(p[a] if a in p else jnp.zeros_like(p[self.zero]) for p in inputs))
                for a in present}

    def product(self, bind: Callable[..., Any], left: Polynomial, right: Polynomial) -> Polynomial:
        """The Cauchy product, for a primitive that is linear in each of two operands."""
        result: Polynomial = {}
        for a, splits in self.splits.items():
            terms = [bind(left[b], right[c]) for b, c in splits if b in left and c in right]
            if terms:
                result[a] = _sum(terms)
        return result

    def power(self, base: Polynomial, exponent: int) -> Polynomial:
        if exponent < 0:
            return self.compose(_generic(lambda x: lax.integer_pow(x, exponent)), base)
        if exponent == 0:
            return {self.zero: jnp.ones_like(base[self.zero])}
        result = base
        for _ in range(exponent - 1):
            result = self.product(lax.mul, result, base)
        return result

    def compose(self, rule: Elementwise, argument: Polynomial) -> Polynomial:
        """An elementwise nonlinearity g, with g'(x) dx as its own derivative rule.

        Without the rule, differentiating by the parameters would keep every intermediate
        product; with it only the polynomial g'(x) is kept.
        """
        @jax.custom_jvp
        def evaluate(x: Polynomial) -> Polynomial:
            return self.substitute(rule.series, x)

        @evaluate.defjvp
        def differentiate(primals: Any, tangents: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            (x,), (dx,) = primals, tangents
            y = evaluate(x)
            slope = rule.slope(self, x, y)
            return y, self.product(lax.mul, slope, dx)

        return evaluate(argument)

    def substitute(self, series: Callable[[Any, int], list[Any]], argument: Polynomial
                   ) -> Polynomial:
        """sum_k g_k h^k, with g_k the series at the constant term and h the rest."""
        coefficients = series(argument[self.zero], self.degree)
        increment = {a: c for a, c in argument.items() if a != self.zero}
        result: Polynomial = {self.zero: coefficients[0]}
        power = increment
        for k in range(1, self.degree + 1):
            for a, c in power.items():
                term = coefficients[k] * c
                result[a] = result[a] + term if a in result else term
            if k < self.degree:
                power = self.product(lax.mul, power, increment)
        return {a: result[a] for a in self.indices if a in result}

    def square(self, x: Polynomial) -> Polynomial:
        """x^2, each pair of coefficients multiplied once."""
        result: Polynomial = {}
        for a, splits in self.splits.items():
            terms = [x[b] * x[c] * (1.0 if b == c else 2.0) for b, c in splits
                     if b <= c and b in x and c in x]
            if terms:
                result[a] = _sum(terms)
        return result


def _sum(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _rounds(name: str, parameters: dict[str, Any]) -> bool:
    """Whether a conversion leaves the floating-point numbers, as truncation to integers does."""
    return name == "convert_element_type" and not jnp.issubdtype(parameters["new_dtype"],
                                                                 jnp.inexact)


def _evaluated(equation: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """The outputs of one equation on plain arrays.

    A call keeps its own derivative rules: parameters may be differentiated later.
    """
    inner = _inner_jaxpr(equation.params)
    if inner is None:
        out = equation.primitive.bind(*inputs, **equation.params)
        return out if equation.primitive.multiple_results else [out]
    named = {v: x for v, x in zip(equation.invars, inputs, strict=True)
             if not isinstance(v, jax_core.Literal)}
    jaxpr = jax_core.Jaxpr([], list(named), equation.outvars, [equation],
                           debug_info=inner.jaxpr.debug_info)
    return jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(jaxpr, []))(*named.values())


def _inner_jaxpr(parameters: dict[str, Any]) -> Any:
    """The function a call-like primitive (jit, custom derivative rules) wraps."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = parameters.get(key)
        if isinstance(inner, jax_core.ClosedJaxpr):
            return inner
        if inner is not None and hasattr(inner, "eqns"):
            return jax_core.ClosedJaxpr(inner, ())
    return None


class Elementwise(NamedTuple):
    """An elementwise function g: its Taylor series at numbers, and g'(x) for polynomials."""

    series: Callable[[Any, int], list[Any]]
    """(x0, degree) -> [g(x0), g'(x0), g''(x0)/2! ...]."""
    slope: Callable[[_Pass, Polynomial, Polynomial], Polynomial]
    """(pass, x, y = g(x)) -> g'(x)."""


def _generic(function: Callable[[Any], Any]) -> Elementwise:
    """Any elementwise function, by differentiating it."""
    def series(x: Any, degree: int) -> list[Any]:
        coefficients, derivative = [function(x)], function
        for k in range(1, degree + 1):
            derivative = _directional(derivative, jnp.ones_like(x))
            coefficients.append(derivative(x) / math.factorial(k))
        return coefficients

    def slope(taylor: _Pass, x: Polynomial, y: Polynomial) -> Polynomial:
        derivative = _directional(function, jnp.ones_like(x[taylor.zero]))
        return taylor.compose(_generic(derivative), x)

    return Elementwise(series, slope)


def _recurrence(function: Callable[[Any], Any], slope: Callable[[list[Any], int], Any]
                ) -> Callable[[Any, int], list[Any]]:
    """The series of y = g(x) from its differential equation: (k+1) y_{k+1} = slope_k(y)."""
    def series(x: Any, degree: int) -> list[Any]:
        y = [function(x)]
        for k in range(degree):
            y.append(slope(y, k) / (k + 1))
        return y

    return series


def _self_product(y: list[Any], k: int) -> Any:
    """The k-th coefficient of y^2."""
    return _sum([y[i] * y[k - i] * (1.0 if 2 * i == k else 2.0) for i in range(k // 2 + 1)])


def _tanh_slope(taylor: _Pass, x: Polynomial, y: Polynomial) -> Polynomial:
    slope = {a: -c for a, c in taylor.square(y).items()}
    return {**slope, taylor.zero: 1.0 + slope[taylor.zero]}


def _logistic_slope(taylor: _Pass, x: Polynomial, y: Polynomial) -> Polynomial:
    return {a: y[a] - c for a, c in taylor.square(y).items()}


def _wave(function: Callable[[Any], Any], other: Callable[[Any], Any], signs: tuple[int, ...]
          ) -> Callable[[Any, int], list[Any]]:
    """sine or cosine: the derivatives alternate between the two, computed once each."""
    def series(x: Any, degree: int) -> list[Any]:
        pair = (function(x), other(x))
        return [pair[0]] + [pair[k % 2] * (signs[k % 4] / math.factorial(k))
                            for k in range(1, degree + 1)]

    return series


def _cosine_slope(taylor: _Pass, x: Polynomial, y: Polynomial) -> Polynomial:
    return {a: -c for a, c in taylor.compose(_RULES["sin"], x).items()}


_RULES: dict[str, Elementwise] = {
    # y' = 1 - y^2, y' = y - y^2 and y' = y.
    "tanh": Elementwise(_recurrence(jnp.tanh, lambda y, k: float(k == 0) - _self_product(y, k)),
                        _tanh_slope),
    "logistic": Elementwise(_recurrence(lax.logistic, lambda y, k: y[k] - _self_product(y, k)),
                            _logistic_slope),
    "exp": Elementwise(_recurrence(jnp.exp, lambda y, k: y[k]), lambda taylor, x, y: y),
    "sin": Elementwise(_wave(jnp.sin, jnp.cos, (1, 1, -1, -1)),
                       lambda taylor, x, y: taylor.compose(_RULES["cos"], x)),
    "cos": Elementwise(_wave(jnp.cos, jnp.sin, (1, -1, -1, 1)), _cosine_slope),
}

_LINEAR = frozenset({
    "add", "add_any", "sub", "neg", "reshape", "broadcast_in_dim", "transpose", "slice", "squeeze",
    "expand_dims", "concatenate", "convert_element_type", "reduce_sum", "cumsum", "rev", "copy",
    "real", "imag", "reduce_precision", "stack", "pad",
})
_INDEXING = frozenset({"gather", "dynamic_slice"})
_BILINEAR = frozenset({"mul", "dot_general", "conv_general_dilated"})
_PIECEWISE_CONSTANT = frozenset({
    "sign", "floor", "ceil", "round", "eq", "ne", "lt", "le", "gt", "ge", "is_finite",
    "stop_gradient", "argmax", "argmin",
})
_ELEMENTWISE = frozenset({
    *_RULES, "log", "log1p", "expm1", "sqrt", "rsqrt", "cbrt", "erf", "erfc", "tan", "sinh",
    "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "abs", "exp2",
})
# Only these mean what the function inside them means; scan and reduce hold one as well.
_CALLS = frozenset({
    "jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint",
    "custom_jvp_call", "custom_vjp_call",
})
