"""`ottla completion`: what a shell needs to complete commands, flags, and the names of topics and groups."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_HOW = {
    "bash": 'eval "$(ottla completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(ottla completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "ottla completion fish | source    # in ~/.config/fish/config.fish",
}


@click.command(
    epilog="\b\n" + "\n".join(_HOW.values()), context_settings={"help_option_names": ["--help", "-h"]}
)
@click.argument("shell", type=click.Choice(list(_HOW)))
def completion(shell: str) -> None:
    """Print the completion script for a shell; it also knows the cluster's topics and groups."""
    from ottla.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "ottla", "_OTTLA_COMPLETE").source())
