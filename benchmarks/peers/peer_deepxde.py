"""DeepXDE on Allen-Cahn, PyTorch back end: Adam, then L-BFGS.

A tanh network 3 x 24 with the exactly periodic inputs (t, cos pi x, sin pi x), 1,321 parameters,
float64, fixed Hammersley points, weight 100 on the initial condition.
"""

import os
import time

BEGAN = time.monotonic()  # Before the expensive imports.
os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from deepxde.optimizers.config import LBFGS_options  # noqa: E402
from recorder import Recorder, arguments  # noqa: E402

MOST_ITERATIONS = 1_000_000
PER_STEP = 50
"""L-BFGS iterations in one call (its history is kept): how often the clock is looked at."""


def residual(x_t, u):
    """u_t - 1e-4 u_xx + 5 u^3 - 5 u."""
    u_t = dde.grad.jacobian(u, x_t, i=0, j=1)
    u_xx = dde.grad.hessian(u, x_t, i=0, j=0)
    return u_t - 1e-4 * u_xx + 5 * u**3 - 5 * u


def initial(x_t):
    x = x_t[:, :1]
    return x**2 * np.cos(np.pi * x)


def periodic_inputs(x_t):
    x, t = x_t[:, :1], x_t[:, 1:]
    return torch.cat([t, torch.cos(torch.pi * x), torch.sin(torch.pi * x)], dim=1)


class FollowError(dde.callbacks.Callback):
    """Every few iterations: one forward pass over the reference grid, and a look at the clock."""

    def __init__(self, recorder, every):
        super().__init__()
        self.recorder, self.every = recorder, every
        self.points = np.ascontiguousarray(recorder.points[:, ::-1])  # DeepXDE's order is (x, t).

    def on_epoch_end(self):
        step = self.model.train_state.step
        lbfgs = self.model.opt_name == "L-BFGS"
        if lbfgs or step % self.every == 0:
            error = self.recorder.score(self.model.predict(self.points))
            self.recorder.record(error, step)
        if self.recorder.over:
            self.model.stop_training = True


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--points", type=int, default=8192)
    parser.add_argument("--initial-points", type=int, default=512)
    parser.add_argument("--initial-weight", type=float, default=100.0)
    parser.add_argument("--adam", type=int, default=1000, help="iterations of Adam")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--every", type=int, default=20, help="Adam's iterations between records")
    options = parser.parse_args()
    recorder = Recorder(options, BEGAN)

    dde.config.set_default_float("float64")
    dde.config.set_random_seed(options.seed)
    domain = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1),
                                        dde.geometry.TimeDomain(0, 1))
    start = dde.icbc.IC(domain, initial, lambda _, on_initial: on_initial)
    data = dde.data.TimePDE(domain, residual, [start], num_domain=options.points,
                            num_initial=options.initial_points,
                            train_distribution="Hammersley")
    network = dde.nn.FNN([3, 24, 24, 24, 1], "tanh", "Glorot normal")
    network.apply_feature_transform(periodic_inputs)
    model = dde.Model(data, network)
    recorder.note(parameters=sum(p.numel() for p in network.parameters()),
                  points=options.points, initial_points=options.initial_points,
                  threads=torch.get_num_threads())
    follow = FollowError(recorder, options.every)
    weights = [1.0, options.initial_weight]

    model.compile("adam", lr=options.learning_rate, loss_weights=weights, verbose=0)
    model.train(iterations=options.adam, display_every=MOST_ITERATIONS, callbacks=[follow],
                verbose=0)
    dde.optimizers.set_LBFGS_options(maxiter=MOST_ITERATIONS, gtol=0)
    LBFGS_options.update(iter_per_step=PER_STEP, fun_per_step=PER_STEP * 5 // 4)
    while not recorder.over:
        before = model.train_state.step
        model.compile("L-BFGS", loss_weights=weights, verbose=0)
        model.train(callbacks=[follow], verbose=0)
        if model.train_state.step <= before:  # From a fresh start too the search finds nothing.
            break
    recorder.note(iterations=int(model.train_state.step),
                  loss=float(np.sum(model.train_state.loss_train)))


if __name__ == "__main__":
    main()
