"""Failures of the mirror's commands: one line on standard error, and exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ottla.connect.failures import ConnectError
from ottla.errors import ApiException
from ottla.mirror.failures import MirrorError
from ottla.pipeline.failures import PipelineError


@contextmanager
def failures_as_lines() -> Iterator[None]:
    """A failure is one line and exit code 1."""
    try:
        yield
    except (MirrorError, ApiException, ConnectError, PipelineError) as error:
        click.echo(f"ottla mirror: {error}", err=True)
        sys.exit(1)
