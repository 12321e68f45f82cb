"""Physics-informed networks that go deep: PirateNets, from a PDE to a field one can trust."""

import os

# SciPy's BLAS and XLA take turns on the same cores. By default OpenBLAS's threads spin for a
# while after each call, which costs a Levenberg-Marquardt iteration 1.7 times its time.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import jax

# References, initialisation and second-order training need float64; what runs in float32
# says so array by array.
jax.config.update("jax_enable_x64", True)

from piratenets.api import load, resume, solve
from piratenets.errors import PirateError
from piratenets.problems import (
    Condition,
    Exact,
    Interval,
    Problem,
    Spectral,
    Symmetry,
    boundary,
    data,
    initial,
    interior,
    periodic,
)
from piratenets.report.report import write_report
from piratenets.runs.run import Report

__version__ = "0.1.0"

__all__ = [
    "Condition",
    "Exact",
    "Interval",
    "PirateError",
    "Problem",
    "Report",
    "Spectral",
    "Symmetry",
    "boundary",
    "data",
    "initial",
    "interior",
    "load",
    "periodic",
    "resume",
    "solve",
    "write_report",
]
