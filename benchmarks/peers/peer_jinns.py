"""jinns on Allen-Cahn: self-scaled Broyden (`ssbroyden`) or natural gradient (`ngd`).

A tanh network 3 x 24 with the exactly periodic inputs (t, cos pi x, sin pi x), 1,321 parameters,
float64. The error is followed by a validation module, jinns' own place for it, so the whole
training is the one compiled loop of `jinns.solve`. It is never recompiled.
"""

import time

BEGAN = time.monotonic()  # Before the expensive imports.

import equinox as eqx  # noqa: E402
import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import jinns  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.experimental import io_callback  # noqa: E402
from jinns.data import CubicMeshPDENonStatio  # noqa: E402
from jinns.loss import LossPDENonStatio, LossWeightsPDENonStatio, PDENonStatio  # noqa: E402
from jinns.optimizers import scale_by_SSBroyden_family, vanilla_ngd  # noqa: E402
from jinns.parameters import Params  # noqa: E402
from jinns.solver import GetJinnsVariableName  # noqa: E402
from jinns.validation._validation import AbstractValidationModule  # noqa: E402
from recorder import Recorder, arguments  # noqa: E402

MOST_ITERATIONS = 200_000


class AllenCahn(PDENonStatio):
    """u_t - 1e-4 u_xx + 5 u^3 - 5 u."""

    def equation(self, t_x, u, params):
        def value(point):
            return u(point, params)[0]

        def along(direction):
            return lambda point: jax.jvp(value, (point,), (direction,))[1]

        dt, dx = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
        v, v_t = jax.jvp(value, (t_x,), (dt,))
        v_xx = jax.jvp(along(dx), (t_x,), (dx,))[1]
        return jnp.array([v_t - 1e-4 * v_xx + 5 * v**3 - 5 * v])


def initial(x):
    return x**2 * jnp.cos(jnp.pi * x)


def periodic_inputs(t_x, params):
    return jnp.array([t_x[0], jnp.cos(jnp.pi * t_x[1]), jnp.sin(jnp.pi * t_x[1])])


class FollowError(AbstractValidationModule):
    """Every few iterations: one forward pass over the reference grid, and a look at the clock."""

    call_every: int = eqx.field(kw_only=True)
    points: jax.Array = eqx.field(kw_only=True)
    values: jax.Array = eqx.field(kw_only=True)
    u: object = eqx.field(kw_only=True)
    heard: object = eqx.field(kw_only=True, static=True)

    def __call__(self, params):
        prediction = jax.vmap(lambda point: self.u(point, params)[0])(self.points)
        error = jnp.linalg.norm(prediction - self.values) / jnp.linalg.norm(self.values)
        stop = io_callback(self.heard, jax.ShapeDtypeStruct((), jnp.bool_), error, ordered=False)
        return self, stop, error, jnp.array(False)


# What jinns hands to optax' line search; the names' beginnings are jinns' convention.
def callback_value(params, loss, batch):
    return loss.evaluate(params, batch)[0]


def callback_gradient(params, loss, batch):
    import jax  # A function handed over this way sees its module's globals only.

    return jax.grad(lambda p: loss.evaluate(p, batch)[0])(params)


SSBROYDEN_EXTRAS = {
    "value": GetJinnsVariableName("train_loss_value"),
    "grad_pt": GetJinnsVariableName("grads"),
    "loss": GetJinnsVariableName("loss"),
    "batch": GetJinnsVariableName("batch"),
    "value_fn": callback_value,
    "grad_fn": callback_gradient,
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--optimiser", choices=("ssbroyden", "ngd"), required=True)
    parser.add_argument("--points", type=int, default=None, help="collocation points in all")
    parser.add_argument("--batch", type=int, default=None, help="of them at once; all by default")
    parser.add_argument("--initial-points", type=int, default=512)
    parser.add_argument("--initial-weight", type=float, default=100.0)
    parser.add_argument("--ridge", type=float, default=1e-5, help="natural gradient: gram_reg")
    parser.add_argument("--every", type=int, default=None, help="iterations between records")
    options = parser.parse_args()
    recorder = Recorder(options, BEGAN)
    broyden = options.optimiser == "ssbroyden"
    points = options.points or (8192 if broyden else 65_536)
    batch = options.batch or (None if broyden else 2048)
    every = options.every or (20 if broyden else 5)

    network_key, data_key, key = jax.random.split(jax.random.PRNGKey(options.seed), 3)
    width = 24
    u, network = jinns.nn.PINN_MLP.create(
        key=network_key, eq_type="PDENonStatio", input_transform=periodic_inputs,
        eqx_list=((eqx.nn.Linear, 3, width), (jax.nn.tanh,),
                  (eqx.nn.Linear, width, width), (jax.nn.tanh,),
                  (eqx.nn.Linear, width, width), (jax.nn.tanh,),
                  (eqx.nn.Linear, width, 1)))
    params = Params(nn_params=network, eq_params={})
    data = CubicMeshPDENonStatio(
        key=data_key, n=points, ni=options.initial_points, dim=1, min_pts=(-1.0,), max_pts=(1.0,),
        tmin=0.0, tmax=1.0, domain_batch_size=batch, method="uniform")
    loss = LossPDENonStatio(
        u=u, dynamic_loss=AllenCahn(), initial_condition_fun=initial, params=params,
        loss_weights=LossWeightsPDENonStatio(dyn_loss=1.0,
                                             initial_condition=options.initial_weight))
    calls = 0

    def heard(error):
        nonlocal calls
        recorder.record(float(error), calls * every + 1)
        calls += 1
        return np.bool_(recorder.over)

    if broyden:
        optimiser, extras = scale_by_SSBroyden_family(), SSBROYDEN_EXTRAS
    else:
        search = optax.scale_by_backtracking_linesearch(max_backtracking_steps=15)
        optimiser, extras = vanilla_ngd(gram_reg=options.ridge, linesearch=search), None
    recorder.note(parameters=sum(p.size for p in jax.tree.leaves(network)), points=points,
                  batch=batch or points, initial_points=options.initial_points)
    result = jinns.solve(
        n_iter=MOST_ITERATIONS, init_params=params, data=data, loss=loss, optimizer=optimiser,
        validation=FollowError(call_every=every, points=jnp.asarray(recorder.points),
                               values=jnp.asarray(recorder.values), u=u, heard=heard),
        extra_optax_args_and_kwargs=extras, verbose=False, key=key)
    losses = np.asarray(result[1])
    done = np.flatnonzero(losses)
    if len(done):
        recorder.note(iterations=int(done[-1]) + 1, loss=float(losses[done[-1]]))


if __name__ == "__main__":
    main()
