"""Checkpoints: the training state as arrays by name, with a digest, whole or not at all.

    step-000000120.safetensors           a state that training goes on from
    step-000000180-final.safetensors     a finished one, less what only further steps would need

Second-order optimisers have a state of many megabytes; what is left without it is small enough
to be kept under version control.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from piratenets.errors import InputError, StorageError
from piratenets.files import read_bytes, write_atomically
from piratenets.training.state import TrainingState

Facts = dict[str, Any]
"""What a checkpoint says beside the state: step, seconds trained ..."""

DIGEST = "sha256"


class DamagedError(StorageError):
    """A checkpoint that does not hold what was written."""


def without_workings(state: TrainingState) -> TrainingState:
    """A finished training's state: less the optimiser's, less the points last drawn, and less the
    room for windows that there might have been."""
    begun = slice(0, None if state.edges is None else int(state.stage))
    finished = jax.tree.map(lambda x: x[begun], state.finished)
    return dataclasses.replace(state, optimiser=None, points={}, finished=finished)


def named_arrays(state: TrainingState) -> dict[str, np.ndarray]:
    """The state's arrays by their path in it."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
            for path, leaf in leaves}


def with_arrays(template: TrainingState, arrays: Mapping[str, np.ndarray], source: Path
                ) -> TrainingState:
    """The template's structure filled with arrays by name."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    found: list[np.ndarray] = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        stored = arrays.get(name)
        if stored is not None and template.edges is not None and name.startswith("finished."):
            stored = _with_room(stored, leaf.shape)
        if stored is None or stored.shape != leaf.shape or stored.dtype != leaf.dtype:
            has = "no such array" if stored is None else f"{stored.dtype} {stored.shape}"
            raise InputError(f"checkpoint {source}",
                             f"it belongs to another network: {name} should be {leaf.dtype} "
                             f"{leaf.shape}, the file has {has}",
                             "Use the configuration that the checkpoint was trained with")
        found.append(stored)
    return jax.tree_util.tree_unflatten(structure, [jnp.asarray(a) for a in found])


def _with_room(stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The networks of the windows there were, with room for those there might have been."""
    if stored.shape[1:] != shape[1:] or len(stored) >= shape[0]:
        return stored
    return np.concatenate([stored, np.zeros((shape[0] - len(stored), *shape[1:]), stored.dtype)])


def save(directory: Path, step: int, state: TrainingState, facts: Facts, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`."""
    return _write(directory / f"step-{step:09d}.safetensors", state, facts, keep)


def save_final(directory: Path, step: int, state: TrainingState, facts: Facts, keep: int) -> Path:
    """The same of a finished training, which will not be gone on with.

    The checkpoints that are kept beside it are full: should this one be damaged, the training
    goes on from the one before.
    """
    path = directory / f"step-{step:09d}-final.safetensors"
    return _write(path, without_workings(state), facts, keep)


def _write(path: Path, state: TrainingState, facts: Facts, keep: int) -> Path:
    arrays, text = named_arrays(state), json.dumps(facts)
    metadata = {"facts": text, DIGEST: _digest(arrays, text)}
    write_atomically(path, safetensors.numpy.save(arrays, metadata))
    for old in saved(path.parent)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def saved(directory: Path) -> list[Path]:
    """The checkpoints in a directory, oldest first."""
    return sorted(directory.glob("step-*.safetensors"))


def read(path: Path, template: TrainingState) -> tuple[TrainingState, Facts]:
    """A checkpoint's state and facts; a `DamagedError` if it is not as it was written."""
    content = read_bytes(path)
    try:
        arrays = safetensors.numpy.load(content)
        metadata = _metadata(content)
        facts, digest = metadata["facts"], metadata[DIGEST]
    except (SafetensorError, ValueError, KeyError, struct.error) as error:
        raise DamagedError(str(path), f"it is damaged ({error})",
                           "Use an older checkpoint") from error
    if _digest(arrays, facts) != digest:
        raise DamagedError(str(path), "it is damaged (its SHA-256 digest does not fit)",
                           "Use an older checkpoint")
    if not any(name.split(".")[0] == "optimiser" for name in arrays):
        template = dataclasses.replace(template, optimiser=None, points={})
    return with_arrays(template, arrays, path), json.loads(facts)


def read_newest(directory: Path, template: TrainingState) -> tuple[TrainingState, Facts] | None:
    """The newest checkpoint that is whole; damaged ones are set aside with a warning."""
    paths = saved(directory)
    for older, path in reversed(list(enumerate(paths))):
        try:
            return read(path, template)
        except DamagedError as error:
            then = "the checkpoint before it is used" if older else "there is none before it"
            warnings.warn(f"{path}: {error.why}. It {_set_aside(path)}; {then}.", stacklevel=2)
    return None


def _set_aside(path: Path) -> str:
    """Rename a damaged checkpoint, and say so (or why not: the directory may be read-only)."""
    aside = path.with_suffix(".damaged")
    try:
        path.rename(aside)
    except OSError as error:
        return f"cannot be set aside ({error.strerror})"
    return f"was set aside as {aside.name}"


def _metadata(content: bytes) -> dict[str, str]:
    """The text entries of a safetensors header: its length in 8 bytes, then JSON."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length])["__metadata__"]


def _digest(arrays: Mapping[str, np.ndarray], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for part in _parts(arrays):
        digest.update(part)
    return digest.hexdigest()


def _parts(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    for name in sorted(arrays):
        array = arrays[name]
        yield f"{name}:{array.dtype}:{array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
