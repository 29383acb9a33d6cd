"""Each flag of each of Kafka's tools is one that ours takes, and one that some comparison uses."""

from __future__ import annotations

import click
import pytest

from oracle.tools_lines import kafkas_flags, used_flags
from ottla.cli.main import main

FLAGS = kafkas_flags()

FOR_PEOPLE = {"--help", "--version", "--bootstrap-server"}
"""Every line has the address; what help and version print is each program's own."""


def taken(command: click.Command) -> set[str]:
    """All spellings that a command takes, its subcommands' included."""
    flags = {word for param in command.params for word in (*param.opts, *param.secondary_opts)}
    flags |= {"--help", *getattr(command, "aliases", {})}
    if isinstance(command, click.Group):
        flags |= {flag for each in command.commands.values() for flag in taken(each)}
    return flags


@pytest.mark.parametrize("tool", FLAGS)
def test_every_flag_is_taken(tool: str) -> None:
    command = main.get_command(click.Context(main), tool)
    assert command is not None
    assert sorted(FLAGS[tool] - taken(command)) == []


@pytest.mark.parametrize("tool", FLAGS)
def test_every_flag_is_in_a_line_that_is_compared(tool: str) -> None:
    assert sorted(FLAGS[tool] - used_flags()[tool] - FOR_PEOPLE) == []
