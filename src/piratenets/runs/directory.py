"""A run's directory: what is in it, who may write to it.

    config.json      the whole configuration, versions, machine, commit
    problem.py       the problem's file, if it came from one
    metrics.jsonl    a line every `record.every` steps
    checkpoints/     the newest states
    summary.json     what the run came to
    report.html      the same for people
"""

from __future__ import annotations

import fcntl
import filecmp
import json
import os
import platform
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from piratenets.config import Config, from_json, to_json
from piratenets.errors import InputError, StorageError
from piratenets.files import TEMPORARY, read_bytes, storage_error, write_atomically

PACKAGES = ("piratenets", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")


class RunDirectory:
    """The files of a run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.problem = path / "problem.py"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.summary = path / "summary.json"
        self.report = path / "report.html"

    @property
    def exists(self) -> bool:
        try:
            return self.config.exists()
        except OSError as error:  # Not to be looked into, or no name that a directory can have.
            raise storage_error(self.path, error, "read") from error

    def create(self, config: Config) -> None:
        """Lay the directory out for a new run; one that holds another is refused."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise InputError(str(self.path), "it is a file", "Name a directory")
            others = [p.name for p in self.path.glob("*") if not self._left_behind(p, config)]
            if others:
                raise InputError(str(self.path), f"it holds other files ({others[0]})",
                                 "Name a new directory")
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            if config.problem.endswith(".py"):
                write_atomically(self.problem, read_bytes(Path(config.problem)))
        except OSError as error:
            raise storage_error(self.path, error, "written") from error
        write_json(self.config, {"config": to_json(config), **circumstances()})

    def _left_behind(self, path: Path, config: Config) -> bool:
        """Whether a file is of this very run, stopped while it was laid out (a full disk)."""
        if path == self.problem:
            return config.problem.endswith(".py") and filecmp.cmp(path, config.problem, False)
        return path.suffix == TEMPORARY or (path == self.checkpoints and not any(path.iterdir()))

    def read_config(self) -> Config:
        """The configuration of the run; its problem is the copy kept here."""
        if not self.exists:
            raise StorageError(str(self.path), "it holds no run (no config.json)",
                               "Name a directory that `piratenets solve` made")
        content = read_json(self.config)
        config = content.get("config") if isinstance(content, dict) else None
        if not isinstance(config, dict):
            raise StorageError(str(self.config), "it holds no configuration", "Restore the file")
        return from_json(cast("dict[str, Any]", config))

    def problem_name(self, config: Config) -> str:
        """Where to find the problem: by name, or the copy of its file that the run keeps."""
        return str(self.problem) if self.problem.exists() else config.problem

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the directory against a second process that would train in it."""
        try:
            file = open(self.path / ".lock", "w")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise storage_error(self.path, error, "locked") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StorageError(str(self.path), "another process is training in it",
                                   "Wait for it, or name another directory") from None
            except OSError as error:
                raise storage_error(self.path, error, "locked") from error
            self._clear()
            yield

    def _clear(self) -> None:
        """Remove what a process that was killed while writing has left."""
        for folder in (self.path, self.checkpoints):
            for path in folder.glob(f".*{TEMPORARY}"):
                with suppress(OSError):
                    path.unlink()

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        try:
            with open(self.metrics, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise storage_error(self.metrics, error, "written") from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines; one cut off by a kill is left out."""
        if not self.metrics.exists():
            return []
        lines: list[dict[str, Any]] = []
        for text in read_bytes(self.metrics).decode(errors="replace").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
        return lines

    def cut_metrics(self, step: int) -> None:
        """Drop the lines past a step: the resumed run will write them again, identically."""
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        write_atomically(self.metrics, "".join(json.dumps(k) + "\n" for k in kept).encode())


def write_json(path: Path, content: Any) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise StorageError(str(path), f"it is not JSON ({error})", "Restore the file") from error


def circumstances() -> dict[str, Any]:
    """Versions, machine, commit and time: what else a run's numbers depend on."""
    return {"versions": {name: _version(name) for name in PACKAGES},
            "python": platform.python_version(), "machine": machine(), "commit": commit(),
            "command": " ".join(sys.argv), "created": datetime.now(UTC).isoformat()}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def machine() -> str:
    """The processor and the number of cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def commit() -> str:
    """The commit of the source tree this package runs from, '+' if it has changes."""
    source = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(source), *arguments], capture_output=True,
                              text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        # Installed packages may lie inside some other project's work tree.
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
