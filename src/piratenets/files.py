"""Writing files so that nothing already saved can be lost."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from piratenets.errors import StorageError

TEMPORARY = ".tmp"
"""How the name of a file that is not written to its end yet ends."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whenever the machine stops.

    The content goes to a temporary file beside it, is flushed to the disk, and takes the
    name in one step; an existing file of that name stays intact until then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except BaseException as error:  # Ctrl-C as well: half a file serves nobody.
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise storage_error(path, error, "written") from error
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise storage_error(path, error, "read") from error


def storage_error(path: Path, error: OSError, action: str) -> StorageError:
    """What the operating system says, with what to do about it."""
    remedies = {
        "PermissionError": "Choose a directory you may write to, or change its permissions",
        "FileNotFoundError": "Check the path",
        "NotADirectoryError": "Choose a path below a directory",
    }
    full = error.errno == 28  # ENOSPC
    remedy = "Free some space; what was saved before is intact" if full else \
        remedies.get(type(error).__name__, "Check the path and the disk")
    return StorageError(str(path), f"it cannot be {action} ({error.strerror or error})", remedy)
