"""What bad input gets: the value, the reason and the remedy, in one sentence each.

Every error a user can cause is a `PirateError`; the command line prints it without
a traceback (unless `--debug`) and exits with its `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PirateError(Exception):
    """A mistake the user can mend. Shown as: what was given, why it fails, what to do."""

    exit_code = 2

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}. {remedy}.")
        self.what, self.why, self.remedy = what, why, remedy


class InputError(PirateError):
    """A value that cannot be used."""


class UnknownName(PirateError, AttributeError, KeyError):
    """A name that does not exist; the remedy lists those that do.

    An `AttributeError` too, so that `hasattr` answers as Python programs expect.
    """

    # KeyError would print the message in quotes.
    __str__ = Exception.__str__


class StorageError(PirateError):
    """A file or directory that cannot be read or written."""

    exit_code = 3


class DivergenceError(PirateError):
    """A training whose loss is no longer finite (or no longer sane)."""

    exit_code = 4


class ConvergenceError(PirateError):
    """A reference solver that did not reach the accuracy it was asked for."""

    exit_code = 5


class Interrupted(PirateError):
    """The user stopped a run; what it had computed is saved."""

    exit_code = 130


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UnknownName:
    """The error for `name` not being one of `valid`, with the nearest valid name."""
    names = [str(option) for option in valid]
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    listing = ", ".join(names) or "none"
    return UnknownName(
        f"{kind} {name!r}", "there is no such name", f"{hint}The names are: {listing}"
    )
