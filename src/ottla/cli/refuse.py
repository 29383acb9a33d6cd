"""Failures of commands: one line on standard error, and exit code 1."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import click

from ottla.errors import ApiException

P = ParamSpec("P")


def refuse(reason: str) -> NoReturn:
    """End with this reason."""
    click.echo("ottla: " + " ".join(reason.split()), err=True)
    sys.exit(1)


def describe_os_error(error: OSError) -> str:
    """An operating system's error with the file it is about."""
    if error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {error.strerror}"


def refusing(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose foreseeable errors end in one line."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except ApiException as error:
            refuse(error.message)
        except OSError as error:
            refuse(describe_os_error(error))

    return wrapped
