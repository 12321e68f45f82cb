"""Adam with the paper's schedule: linear warm-up, then exponential decay."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax import Array

from piratenets.config import OptimiserConfig
from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.weighting.losses import Losses


def schedule(config: OptimiserConfig) -> optax.Schedule:
    """The learning rate relative to its peak: step / warmup, then decay_rate^(later / steps)."""
    return optax.warmup_exponential_decay_schedule(
        init_value=0.0 if config.warmup_steps else 1.0, peak_value=1.0,
        warmup_steps=config.warmup_steps, transition_steps=config.decay_steps,
        decay_rate=config.decay_rate)


def adam(config: OptimiserConfig) -> Optimiser:
    """Adam; its learning rate is an argument, so that another one compiles nothing new."""
    transform, relative_rate = optax.scale_by_adam(), schedule(config)

    def init(parameters: Any, losses: Losses) -> Any:
        del losses
        return transform.init(parameters)

    def update(objective: Objective, parameters: Any, state: Any, learning_rate: Array,
               step: Array, renewed: Array) -> tuple[Any, Any, Losses, Array]:
        del renewed
        (_, losses), gradient = jax.value_and_grad(objective, has_aux=True)(parameters)
        direction, state = transform.update(gradient, state, parameters)
        rate = learning_rate * relative_rate(step)
        moved = jax.tree.map(lambda p, d: p - rate.astype(p.dtype) * d, parameters, direction)
        return moved, state, losses, optax.tree.norm(gradient)

    return Optimiser(init, update)
