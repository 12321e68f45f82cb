import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import UnknownName
from piratenets.problems.unknown import Names, Unknown, parse_derivative

TXY = ("t", "x", "y")


@pytest.mark.parametrize(("name", "index"), [
    ("", (0, 0, 0)), ("t", (1, 0, 0)), ("xx", (0, 2, 0)), ("xy", (0, 1, 1)), ("yx", (0, 1, 1)),
    ("xxy", (0, 2, 1)), ("txyy", (1, 1, 2)), ("xxxx", (0, 4, 0)),
])
def test_derivatives_by_name(name, index):
    assert parse_derivative(name, TXY) == index


@pytest.mark.parametrize(("name", "index"), [
    ("x1", (1, 0, 0)), ("x1x2", (1, 1, 0)), ("x2x2x", (0, 2, 1)), ("xx1", (1, 0, 1)),
])
def test_the_longest_coordinate_that_fits_is_taken(name, index):
    assert parse_derivative(name, ("x1", "x2", "x")) == index


def test_a_derivative_by_no_coordinate_names_those_there_are():
    with pytest.raises(UnknownName, match=r"derivative 'xz': coordinate 'z'.*names are: t, x, y"):
        parse_derivative("xz", TXY)


def example(value=3.0):
    """An unknown whose value is 3 and whose derivative by index (i, j) is 10 i + j."""
    return Unknown("u", ("t", "x"), lambda a: jnp.asarray(value if a == (0, 0)
                                                          else 10.0 * a[0] + a[1]))


def test_attributes_are_looked_up_by_multi_index():
    u = example()
    assert [float(d) for d in (u.value, u.t, u.x, u.xx, u.tx, u.xt)] == [3, 10, 1, 2, 11, 11]


@pytest.mark.parametrize(("operation", "left", "right"), [
    (operator.add, 5.0, 5.0), (operator.sub, 1.0, -1.0), (operator.mul, 6.0, 6.0),
    (operator.truediv, 1.5, 2 / 3), (operator.pow, 9.0, 8.0),
])
def test_arithmetic_on_either_side(operation, left, right):
    u = example()
    assert float(operation(u, 2.0)) == pytest.approx(left, abs=1e-15)
    assert float(operation(2.0, u)) == pytest.approx(right, abs=1e-15)
    assert float(operation(u, jnp.array(2.0))) == pytest.approx(left, abs=1e-15)
    assert float(operation(jnp.array(2.0), u)) == pytest.approx(right, abs=1e-15)
    assert float(operation(u, example(2.0))) == pytest.approx(left, abs=1e-15)


def test_negation_and_functions_of_arrays():
    u = example(0.5)
    assert float(-u) == -0.5
    assert float(jnp.sin(u.value)) == float(jnp.sin(jnp.asarray(u))) == pytest.approx(
        0.479425538604203, abs=1e-15)


def test_hasattr_answers_as_python_programs_expect():
    u = example()
    assert hasattr(u, "tx")
    assert not hasattr(u, "z")
    assert not hasattr(u, "_private")


def test_names_by_attribute_by_key_and_in_order():
    c = Names("coefficient", {"epsilon": 0.5, "mu": 2.0})
    assert (c.epsilon, c["mu"], list(c), len(c)) == (0.5, 2.0, ["epsilon", "mu"], 2)
    with pytest.raises(UnknownName, match=r"coefficient 'epsilom'.*Did you mean 'epsilon'\?"):
        _ = c.epsilom
    with pytest.raises(TypeError, match="read-only: 'epsilon'"):
        c.epsilon = 1.0


def test_names_pass_through_compiled_functions_as_traced_values():
    traces = []

    @jax.jit
    def double(c):
        traces.append(c)
        return Names("coefficient", {k: 2 * c[k] for k in c})

    for nu in (0.5, 0.75):
        doubled = double(Names("coefficient", {"nu": nu, "mu": 2.0}))
        np.testing.assert_array_equal([doubled.nu, doubled.mu], [2 * nu, 4.0])
    assert len(traces) == 1
