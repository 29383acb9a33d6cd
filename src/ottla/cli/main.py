"""The entry point: names of commands, and nothing that makes the start of one slower for the sake of another."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from ottla import __version__
from ottla.cli.tools import registry

_COMMANDS: Final = {
    "spark": "ottla.pipeline.cli",
    "start": "ottla.cli.start",
    "storage": "ottla.cli.storage",
}

_KAFKA_SCRIPTS: Final = {
    "kafka-server-start": "ottla.cli.kafka_server",
    "kafka-server-stop": "ottla.cli.kafka_server",
}
"""What the scripts in `bin/` call: the same programs in Kafka's words. Not shown in the help."""


class _Commands(click.Group):
    """Commands by name; a module holds its command under the command's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*_COMMANDS, *registry.TOOLS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name) or _KAFKA_SCRIPTS.get(cmd_name)
        if module is None:
            return registry.load(cmd_name)
        command: click.Command = getattr(import_module(module), cmd_name.replace("-", "_"))
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ottla", message="%(prog)s %(version)s")
def main() -> None:
    """Ottla: Kafka, whole, for people who work in Python."""
