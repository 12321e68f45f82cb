"""Physics-informed networks that go deep."""

import jax

# References, initialisation and second-order training need float64; what runs in float32
# says so array by array.
jax.config.update("jax_enable_x64", True)
