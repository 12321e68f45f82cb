import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from piratenets.fields import taylor
from piratenets.fields.taylor import derivatives, downward_closure

from ..common import network, network_config

pytestmark = pytest.mark.usefixtures("quick_compilation")

ORDER = 4


def indices(dimensions, order=ORDER):
    return [a for a in itertools.product(range(order + 1), repeat=dimensions) if sum(a) <= order]


def falling(n, k):
    """n (n - 1) ... (n - k + 1)."""
    return math.prod(n - i for i in range(k))


@pytest.fixture
def no_fallback(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("nested differentiation was used")

    monkeypatch.setattr(taylor, "_nested", refuse)


@pytest.fixture
def fallbacks(monkeypatch):
    """The indices that nested differentiation was used for."""
    used, nested = [], taylor._nested

    def spy(function, point, index):
        used.append(index)
        return nested(function, point, index)

    monkeypatch.setattr(taylor, "_nested", spy)
    return used


# Closed forms ----------------------------------------------------------------------------------

def test_wave_times_exponential_in_three_coordinates(no_fallback):
    a, b, c = 1.3, -0.7, 0.9
    x, y, z = 0.4, -0.2, 0.3
    table = derivatives(lambda p: jnp.sin(a * p[0] + b * p[1]) * jnp.exp(c * p[2]),
                        jnp.array([x, y, z]), indices(3))
    assert len(table) == 35
    for i, j, k in indices(3):
        exact = (a**i * b**j * c**k * math.exp(c * z)
                 * math.sin(a * x + b * y + (i + j) * math.pi / 2))
        assert float(table[i, j, k]) == pytest.approx(exact, abs=1e-10)


def test_cosine_of_a_product(no_fallback):
    x, y = 0.8, -1.1
    table = derivatives(lambda p: jnp.cos(p[0] * p[1]), jnp.array([x, y]), [(2, 2), (1, 1)])
    z = x * y
    assert float(table[1, 1]) == pytest.approx(-math.sin(z) - z * math.cos(z), abs=1e-10)
    assert float(table[2, 2]) == pytest.approx(
        (z**2 - 2) * math.cos(z) + 4 * z * math.sin(z), abs=1e-10)


def test_polynomial(no_fallback):
    x, y = 1.5, -2.0
    table = derivatives(lambda p: p[0] ** 3 * p[1] ** 2 - 2 * p[0] * p[1] + 5,
                        jnp.array([x, y]), indices(2))

    def monomial(m, n, i, j):
        return falling(m, i) * x ** max(m - i, 0) * falling(n, j) * y ** max(n - j, 0)

    for i, j in indices(2):
        exact = monomial(3, 2, i, j) - 2 * monomial(1, 1, i, j) + 5 * ((i, j) == (0, 0))
        assert float(table[i, j]) == pytest.approx(exact, abs=1e-10)


def test_quotient(no_fallback):
    x, y = 0.7, 1.3
    table = derivatives(lambda p: p[0] / p[1], jnp.array([x, y]), indices(2))
    for i, j in indices(2):
        exact = (x, 1, 0, 0, 0)[i] * (-1) ** j * math.factorial(j) / y ** (j + 1)
        assert float(table[i, j]) == pytest.approx(exact, abs=1e-10)


def _witch(x):
    """Derivatives of 1 / (1 + x^2), the imaginary part of 1 / (x - i)."""
    return [((-1) ** k * math.factorial(k) / (x - 1j) ** (k + 1)).imag for k in range(5)]


def _tanh(x):
    t = math.tanh(x)
    s = 1 - t**2
    return [t, s, -2 * t * s, (6 * t**2 - 2) * s, (16 * t - 24 * t**3) * s]


def _power(n, x):
    return [falling(n, k) * x ** (n - k) for k in range(5)]


def _erf(x):
    g = 2 / math.sqrt(math.pi) * math.exp(-(x**2))
    return [math.erf(x), g, -2 * x * g, (4 * x**2 - 2) * g, (12 * x - 8 * x**3) * g]


ONE_DIMENSIONAL = {
    "witch": (lambda x: 1 / (1 + x**2), 0.6, _witch(0.6)),
    "tanh": (jnp.tanh, 0.3, _tanh(0.3)),
    "logistic": (jax.nn.sigmoid, 0.6,
                 [(d + (k == 0)) / 2 ** (k + 1) for k, d in enumerate(_tanh(0.3))]),
    "exp": (lambda x: jnp.exp(-2 * x), 0.5, [(-2) ** k * math.exp(-1) for k in range(5)]),
    "sqrt": (jnp.sqrt, 1.7, _power(0.5, 1.7)),
    "rsqrt": (lax.rsqrt, 1.7, _power(-0.5, 1.7)),
    "cbrt": (jnp.cbrt, 1.7, _power(1 / 3, 1.7)),
    "log": (jnp.log, 1.7, [math.log(1.7), *(d for d in _power(-1, 1.7)[:4])]),
    "real power": (lambda x: x**2.5, 1.7, _power(2.5, 1.7)),
    "negative power": (lambda x: x**-3, 1.7, _power(-3, 1.7)),
    "square": (jnp.square, 1.7, _power(2, 1.7)),
    "erf": (jax.scipy.special.erf, 0.4, _erf(0.4)),
    "abs, left of 0": (lambda x: jnp.abs(x) ** 3, -0.5, [-d for d in _power(3, -0.5)]),
    "max, first": (lambda x: jnp.maximum(x**2, x), 2.0, _power(2, 2.0)),
    "max, second": (lambda x: jnp.maximum(x**2, x), 0.5, _power(1, 0.5)),
    "min, first": (lambda x: jnp.minimum(x**2, x), 0.5, _power(2, 0.5)),
    "where, true": (lambda x: jnp.where(x > 0, x**3, jnp.exp(x)), 0.5, _power(3, 0.5)),
    "where, false": (lambda x: jnp.where(x > 0, x**3, jnp.exp(x)), -0.5, [math.exp(-0.5)] * 5),
    "constant": (lambda x: jnp.array(3.0), 0.5, [3.0, 0, 0, 0, 0]),
    # What is constant but for jumps: derivatives are those of the piece.
    "floor": (lambda x: jnp.floor(5 * x) * x**2, 0.5, [2 * d for d in _power(2, 0.5)]),
    "to integers and back": (lambda x: (5 * x).astype(int).astype(float) * x**2, 0.5,
                             [2 * d for d in _power(2, 0.5)]),
    "stopped gradient": (lambda x: lax.stop_gradient(x) * x**2, 0.5,
                         [0.5 * d for d in _power(2, 0.5)]),
}


@pytest.mark.parametrize("name", ONE_DIMENSIONAL)
def test_one_dimensional_functions(name, no_fallback):
    function, x, exact = ONE_DIMENSIONAL[name]
    table = derivatives(lambda p: function(p[0]), jnp.array([x]), [(4,)])
    np.testing.assert_allclose([table[k,] for k in range(5)], exact, rtol=1e-12, atol=1e-10)


def test_indexing_and_linear_algebra(no_fallback):
    """(x + y) x^2, put together from pieces of arrays."""
    def function(p):
        powers = jnp.stack([p[0], p[0] ** 2, p[1]])
        chosen = powers[jnp.array([1, 1])]
        return chosen @ (jnp.eye(2) @ p[::-1])

    x, y = 0.7, -0.4
    table = derivatives(function, jnp.array([x, y]), [(3, 1)])
    exact = {(0, 0): x**3 + x**2 * y, (1, 0): 3 * x**2 + 2 * x * y, (2, 0): 6 * x + 2 * y,
             (3, 0): 6, (0, 1): x**2, (1, 1): 2 * x, (2, 1): 2, (3, 1): 0}
    assert table.keys() == exact.keys()
    for index, value in exact.items():
        assert float(table[index]) == pytest.approx(value, abs=1e-12)


def test_index_that_depends_on_the_point(no_fallback):
    """A table looked up at floor(4 x), times x^3."""
    values = jnp.array([2.0, 3.0, 5.0, 7.0])
    table = derivatives(lambda p: values[(4 * p[0]).astype(int)] * p[0] ** 3, jnp.array([0.6]),
                        [(2,)])
    np.testing.assert_allclose([table[k,] for k in range(3)],
                               [5 * d for d in _power(3, 0.6)[:3]], rtol=1e-13)


# Loops, branches and what holds a function without being a call -----------------------------

def _scan(x):
    return lax.scan(lambda carry, _: (carry * x, None), jnp.ones_like(x), None, length=4)[0]


def _reduced(x):
    """Combines entries by a + b + a b: the product of (1 + entry), less one."""
    return lax.reduce(jnp.stack([x, x**2]), jnp.zeros_like(x), lambda a, b: a + b + a * b, (0,))


FALLING_BACK = {
    "scan": (_scan, 0.8, _power(4, 0.8)),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, jnp.ones_like(x)), 0.8,
                  _power(3, 0.8)),
    "while_loop": (lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * x),
                                            (0, x))[1], 0.8, _power(3, 0.8)),
    "cond, true": (lambda x: lax.cond(x > 0, lambda y: y**3, jnp.exp, x), 0.8, _power(3, 0.8)),
    "cond, false": (lambda x: lax.cond(x > 0, lambda y: y**3, jnp.exp, x), -0.8,
                    [math.exp(-0.8)] * 5),
    "sort": (lambda x: jnp.sort(jnp.stack([x**3, x]))[0], 0.8, _power(3, 0.8)),
    "reduce": (_reduced, 0.8, [a + b + c for a, b, c in zip(
        _power(1, 0.8), _power(2, 0.8), _power(3, 0.8), strict=True)]),
}


@pytest.mark.parametrize("name", FALLING_BACK)
def test_what_has_no_rule_is_differentiated_by_nesting(name, fallbacks):
    function, x, exact = FALLING_BACK[name]
    table = derivatives(lambda p: function(p[0]), jnp.array([x]), [(4,)])
    np.testing.assert_allclose([table[k,] for k in range(5)], exact, rtol=1e-12, atol=1e-10)
    assert sorted(fallbacks) == [(k,) for k in range(5)]


def test_loop_over_constants_needs_no_nesting(no_fallback):
    """Only what the point enters is pushed through: a loop over other numbers stays a loop."""
    table = derivatives(lambda p: _scan(jnp.array(2.0)) * p[0] ** 2, jnp.array([0.5]), [(2,)])
    assert [float(table[k,]) for k in range(3)] == [4.0, 16.0, 32.0]


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, jax.custom_jvp, jax.custom_vjp])
def test_calls_are_looked_into(wrap, no_fallback):
    function = wrap(lambda x: x**3)
    if wrap is jax.custom_jvp:
        function.defjvp(lambda primals, tangents: (primals[0] ** 3, tangents[0]))
    if wrap is jax.custom_vjp:
        function.defvjp(lambda x: (x**3, None), lambda _, g: (g,))
    table = derivatives(lambda p: function(p[0]), jnp.array([0.8]), [(3,)])
    np.testing.assert_allclose([table[k,] for k in range(4)], _power(3, 0.8)[:4], rtol=1e-13)


# What is carried ------------------------------------------------------------------------------

@pytest.mark.parametrize(("wanted", "closure"), [
    ([(0, 0)], [(0, 0)]),
    ([(1, 0), (0, 2)], [(0, 0), (0, 1), (1, 0), (0, 2)]),
    ([(0, 3)], [(0, 0), (0, 1), (0, 2), (0, 3)]),
    ([(1, 2)], [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]),
])
def test_downward_closure(wanted, closure):
    assert list(downward_closure(wanted)) == closure


@pytest.mark.parametrize(("wanted", "count"), [
    ([(1, 0), (0, 2)], 4), ([(1, 0), (0, 3)], 5), ([(1, 0, 0), (0, 2, 0), (0, 0, 2)], 6),
    ([(2, 2)], 9), (indices(2), 15), ([(0, 4, 0), (0, 2, 2), (0, 0, 4)], 13),
])
def test_exactly_the_closure_is_returned(wanted, count):
    dimensions = len(wanted[0])
    table = derivatives(lambda p: jnp.sum(p) ** 2, jnp.zeros(dimensions), wanted)
    assert tuple(table) == downward_closure(wanted)
    assert len(table) == count


def _count(jaxpr, name):
    inner = [getattr(v, "jaxpr", v) for e in jaxpr.eqns for v in e.params.values()]
    return sum(e.primitive.name == name for e in jaxpr.eqns) + sum(
        _count(j, name) for j in inner if hasattr(j, "eqns"))


def test_only_coefficients_that_can_differ_from_zero_are_computed():
    """u.t and u.xx: after a linear layer 1, t and x; after a nonlinearity also xx."""
    first, second = jnp.ones((2, 3)), jnp.ones((3, 1))

    def count(wanted, name):
        def table(p):
            return derivatives(lambda p: jnp.tanh(p @ first) @ second, p, wanted)

        return _count(jax.make_jaxpr(table)(jnp.ones(2)).jaxpr, name)

    assert count([(1, 0), (0, 2)], "dot_general") == 3 + 4
    assert count([(1, 0)], "dot_general") == 2 + 2
    assert count([(0, 0)], "dot_general") == 1 + 1
    assert count([(1, 0), (0, 2)], "tanh") == 1


# Networks ------------------------------------------------------------------------------------

# Every backbone, activation and embedding, none at alpha = 0 (where the blocks vanish).
NETWORKS = {
    "pirate": network_config("pirate", "fourier", activation="tanh", alpha=0.7),
    "pirate without gates": network_config("pirate", "spectral", activation="gelu", alpha=0.4,
                                           gates=False),
    "modified-mlp": network_config("modified-mlp", "chebyshev", activation="sine"),
    "mlp": network_config("mlp", "radial", activation="swish"),
    "resnet": network_config("resnet", "none", activation="tanh"),
}
# A form of degree four in two variables is known from its values in five directions.
DIRECTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 2.0]])


def nested_along(function, point):
    """The derivatives of orders 0 ... 4 along every direction, by nested forward mode."""
    def along(direction):
        def differentiated(g):
            return lambda s: jax.jvp(g, (s,), (1.0,))[1]

        g, orders = (lambda s: function(point + s * direction)[0]), []
        for _ in range(ORDER + 1):
            orders.append(g(0.0))
            g = differentiated(g)
        return jnp.stack(orders)

    return jax.vmap(along)(jnp.asarray(DIRECTIONS))


def along_from_table(table):
    """The same from the derivatives by coordinate: sum over |a| = k of (k! / a!) D^a v^a."""
    return np.array([[sum(math.comb(k, i) * float(table[i, k - i][0]) * v[0] ** i * v[1] ** (k - i)
                          for i in range(k + 1)) for k in range(ORDER + 1)] for v in DIRECTIONS])


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_nested_differentiation(name, no_fallback):
    net, point = network(NETWORKS[name], seed=1), jnp.array([0.3, -0.4])
    table = derivatives(net, point, indices(2))
    nested = np.asarray(jax.jit(nested_along)(net, point))
    scale = np.maximum(1.0, np.abs(nested).max(axis=0))
    assert (np.abs(nested).max(axis=0) > 1e-3).all()
    np.testing.assert_allclose(along_from_table(table) / scale, nested / scale, rtol=0, atol=1e-10)


def test_vmap_and_jit_give_the_same():
    net = network(NETWORKS["pirate"], seed=2)
    points = jnp.array([[0.1, 0.2], [0.5, -0.9], [0.8, 0.6]])
    wanted = [(1, 0), (0, 2)]
    batched = jax.jit(jax.vmap(lambda p: derivatives(net, p, wanted)))(points)
    for k, point in enumerate(points):
        for index, value in derivatives(net, point, wanted).items():
            np.testing.assert_allclose(batched[index][k], value, rtol=0, atol=1e-12)


# Differentiation by parameters ----------------------------------------------------------------

PARAMETERS = jnp.array([0.7, -0.4, 1.3])
FUNCTIONS = {
    "tanh": lambda a, x: jnp.tanh(a[0] * x + a[1]) * a[2],
    "logistic": lambda a, x: jax.nn.sigmoid(a[0] * x + a[1]) * a[2],
    "exp": lambda a, x: jnp.exp(a[0] * x + a[1]) * a[2],
    "sin": lambda a, x: jnp.sin(a[0] * x * x + a[1]) * a[2],
    "cos": lambda a, x: jnp.cos(a[0] * x * x + a[1]) * a[2],
    "generic": lambda a, x: jnp.log(a[2] + jnp.sqrt(1 + a[0] ** 2 * x**2)) / (2 + a[1] * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameter_gradients_equal_those_of_nested_reverse_mode(name):
    """Each rule states its own derivative, as a polynomial of the order that is wanted."""
    function, order = FUNCTIONS[name], 3 if name == "generic" else 4

    def from_pass(a):
        table = derivatives(lambda p: function(a, p[0]), jnp.array([0.3]), [(order,)])
        return jnp.stack([table[k,] for k in range(order + 1)])

    def nested(a):
        g, orders = (lambda x: function(a, x)), []
        for _ in range(order + 1):
            orders.append(g(0.3))
            g = jax.grad(g)
        return jnp.stack(orders)

    expected = jax.jit(jax.jacrev(nested))(PARAMETERS)
    assert np.abs(np.asarray(expected)).min(axis=0).max() > 1e-4
    for mode in (jax.jacrev, jax.jacfwd):
        got = jax.jit(mode(from_pass))(PARAMETERS)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_network_parameter_gradient_equals_that_of_nested_reverse_mode():
    """Of (u_t + u u_x + u_xx)^2, with gates."""
    net, (t, x) = network(network_config("modified-mlp", layers=1), seed=3), (0.3, -0.4)

    def from_pass(n):
        table = derivatives(n, jnp.array([t, x]), [(1, 0), (0, 2)])
        return ((table[1, 0] + table[0, 0] * table[0, 1] + table[0, 2]) ** 2)[0]

    def nested(n):
        def u(t, x):
            return n(jnp.stack([t, x]))[0]

        u_x = jax.grad(u, 1)
        return (jax.grad(u)(t, x) + u(t, x) * u_x(t, x) + jax.grad(u_x, 1)(t, x)) ** 2

    got, expected = (jax.jit(jax.grad(f))(net)
                     for f in (from_pass, nested))
    largest = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(expected))
    assert largest > 1.0
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(g, e, rtol=0, atol=1e-11 * largest)


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_stays_float32(name):
    net = network(NETWORKS[name], dtype="float32")
    table = jax.eval_shape(lambda p: derivatives(net, p, [(1, 0), (0, 3)]),
                           jax.ShapeDtypeStruct((2,), "float32"))
    assert {v.dtype for v in table.values()} == {jnp.dtype("float32")}
