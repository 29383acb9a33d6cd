"""The entry point: names of commands, and nothing that makes the start of one slower for the sake of another."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click
from click.shell_completion import CompletionItem

from ottla import __version__
from ottla.cli.refuse import refuse
from ottla.cli.tools import registry

_COMMANDS: Final = {
    "completion": "ottla.cli.completion",
    "connect": "ottla.connect.cli",
    "console": "ottla.console.cli",
    "connectors": "ottla.connect.connectors_cli",
    "demo": "ottla.demo.cli",
    "migrate": "ottla.cli.migrate.commands",
    "mirror": "ottla.mirror.cli",
    "profile": "ottla.cli.profile",
    "secure": "ottla.cli.secure.commands",
    "registry": "ottla.cli.registry",
    "schemas": "ottla.cli.schemas",
    "spark": "ottla.pipeline.cli",
    "start": "ottla.cli.start",
    "storage": "ottla.cli.storage",
    "streams": "ottla.streams.cli",
}

_KAFKA_SCRIPTS: Final = {
    "kafka-mirror-maker": "ottla.mirror.legacy",
    "kafka-server-start": "ottla.cli.kafka_server",
    "kafka-server-stop": "ottla.cli.kafka_server",
}
"""Commands for the scripts in `bin/`, with Kafka's names and flags. The help does not show them."""


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By area, and from a table: loading every command to ask it for its help would take a second."""
        from ottla.cli.areas import by_area

        for title, commands in by_area(self.list_commands(ctx)):
            with formatter.section(title):
                formatter.write_dl(commands, col_max=27)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from ottla.cli.areas import by_area

        helps = {name: text for _, commands in by_area(self.list_commands(ctx)) for name, text in commands}
        words = [
            CompletionItem(name, help=text) for name, text in helps.items() if name.startswith(incomplete)
        ]
        return words or click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean `ottla {near[0]}`?" if near else "`ottla` alone shows what there is"
            refuse(f"there is no command '{name}'; {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="ottla", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Ottla: a Kafka-compatible message broker, client and stream processor."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
