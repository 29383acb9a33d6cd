"""`ottla metadata-shell`: what kafka-metadata-shell does: a walk through a snapshot, or a log, of the metadata."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import click

from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.metadata_tree import Loaded, Tree, find

_TITLE: Final = "[ Kafka Metadata Shell ]"
_PROMPT: Final = ">> "
_ENDS: Final = ("exit", "quit")


class MetadataShellFlags(Flags):
    """The flags of `ottla metadata-shell`."""

    snapshot: str
    command: tuple[str, ...]


@tool(
    "metadata-shell",
    click.option("--snapshot", "-s", metavar="FILE", help="The snapshot or the log to read."),
    click.argument("command", nargs=-1),
    offline=True,
)
def metadata_shell(session: Session, flags: MetadataShellFlags) -> None:
    """Look into a snapshot, or a log, of the cluster's metadata."""
    require(flags, "snapshot")
    tree = Loaded(Path(flags.snapshot)).tree()
    if session.as_json:
        session.dump(tree)
        return
    shell = Shell(tree)
    if not flags.command:
        _interact(shell)
        return
    name = flags.command[0]
    if name not in shell.one_shot:
        choices = ", ".join(f"'{each}'" for each in sorted(shell.one_shot))
        raise click.UsageError(f"invalid choice: '{name}' (choose from {choices})")
    shell.run(flags.command)


class Shell:
    """Commands on a tree, and the directory that one is in."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.directory = "/"
        self.history: list[str] = []
        self.one_shot: dict[str, tuple[Callable[[list[str]], None], str]] = {
            "cat": (self._cat, "Show the contents of metadata files."),
            "find": (self._find, "Search for nodes in the directory hierarchy."),
            "ls": (self._ls, "List metadata nodes."),
            "tree": (self._show_tree, "Show the contents of metadata nodes in a tree structure."),
        }
        self.commands = {
            **self.one_shot,
            "cd": (self._cd, "Set the current working directory."),
            "exit": (lambda _: None, "Exit the metadata shell."),
            "help": (self._help, "Display this help message."),
            "history": (self._history, "Print command history."),
            "man": (self._man, "Show the help text for a specific command."),
            "pwd": (self._pwd, "Print the current working directory."),
        }

    def run(self, words: Iterable[str]) -> None:
        name, *arguments = words
        known = self.commands.get(name)
        if known is None:
            choices = ", ".join(f"'{each}'" for each in sorted(self.commands))
            click.echo(f"invalid choice: '{name}' (choose from {choices})")
            return
        known[0](arguments)

    def complete(self, text: str) -> list[str]:
        """Paths with this prefix."""
        directory, slash, _ = text.rpartition("/")
        found = []
        for path, node in find(self._tree, f"{text}*", self.directory):
            end = "/" if isinstance(node, Mapping) else ""
            found.append(f"{directory}{slash}{path[-1]}{end}" if path else text)
        return found

    def _found(self, glob: str) -> list[tuple[list[str], object]]:
        return list(find(self._tree, glob, self.directory))

    def _cat(self, targets: list[str]) -> None:
        for target in targets:
            found = self._found(target)
            for _, node in found:
                click.echo(f"cat: {target}: Is a directory" if isinstance(node, Mapping) else node)
            if not found:
                click.echo(f"cat: {target}: No such file or directory.")

    def _show_tree(self, targets: list[str]) -> None:
        for target in targets:
            found = self._found(target)
            for _, node in found:
                _print_tree(node, 0)
            if not found:
                click.echo(f"tree: {target}: No such file or directory.")

    def _find(self, targets: list[str]) -> None:
        for target in targets or ["."]:
            found = self._found(target)
            for _, node in found:
                _print_paths(target, node)
            if not found:
                click.echo(f"find: {target}: no such file or directory.")

    def _ls(self, targets: list[str]) -> None:
        files: list[str] = []
        directories: list[tuple[str, list[str]]] = []
        for target in targets or ["."]:
            found = self._found(target)
            for path, node in found:
                name = path[-1] if path else "/"
                if isinstance(node, Mapping):
                    directories.append((name, sorted(node)))
                else:
                    files.append(name)
            if not found:
                click.echo(f"ls: {target}: no such file or directory.")
        _print_columns(files)
        titled = bool(files) or len(directories) > 1
        for index, (name, children) in enumerate(directories):
            if titled and children:
                click.echo(("\n" if files or index else "") + f"{name}:")
            _print_columns(children)

    def _cd(self, targets: list[str]) -> None:
        target = targets[0] if targets else "/"
        found = self._found(target)
        for path, node in found:
            if isinstance(node, Mapping):
                self.directory = "/" + "/".join(path)
            else:
                click.echo(f"cd: {target}: not a directory.")
        if not found:
            click.echo(f"cd: {target}: no such directory.")

    def _pwd(self, _: list[str]) -> None:
        click.echo(self.directory)

    def _help(self, _: list[str]) -> None:
        for name in sorted(self.commands):
            click.echo(f"  {name:<10} {self.commands[name][1]}")

    def _man(self, words: list[str]) -> None:
        for name in words:
            known = self.commands.get(name)
            if known is None:
                click.echo(f"man: unknown command {name}. Type help to get a list of commands.")
            else:
                click.echo(f"{name}: {known[1]}")

    def _history(self, words: list[str]) -> None:
        count = int(words[0]) if words and words[0].isdecimal() else len(self.history)
        first = max(len(self.history) - count, 0)
        for number, line in enumerate(self.history[first:], first):
            click.echo(f"{number:5d}  {line}")


def _print_tree(node: object, depth: int) -> None:
    if not isinstance(node, Mapping):
        click.echo(f"{'  ' * depth}{node}")
        return
    for name in sorted(node):
        click.echo("  " * depth + f"{name}:")
        _print_tree(node[name], depth + 1)


def _print_paths(path: str, node: object) -> None:
    click.echo(path)
    if isinstance(node, Mapping):
        for name in sorted(node):
            _print_paths(f"/{name}" if path == "/" else f"{path}/{name}", node[name])


def _print_columns(names: list[str]) -> None:
    """Names in as many columns as fit the terminal; in one column without a terminal."""
    if not names:
        return
    if not sys.stdout.isatty():
        click.echo("\n".join(names))
        return
    import shutil

    screen = shutil.get_terminal_size().columns
    for count in range(min(len(names), screen // 4), 0, -1):
        height = -(-len(names) // count)
        columns = [names[start : start + height] for start in range(0, len(names), height)]
        widths = [max(map(len, column)) + 2 for column in columns]
        if sum(widths) <= screen or count == 1:
            for row in range(height):
                cells = (
                    column[row].ljust(width)
                    for column, width in zip(columns, widths, strict=True)
                    if row < len(column)
                )
                click.echo("".join(cells).rstrip())
            return


def _interact(shell: Shell) -> None:
    """Read commands until there are no more, with completion and history at a terminal."""
    if sys.stdin.isatty():
        _set_up_editing(shell)
    click.echo(f"Loading...\nStarting...\n{_TITLE}")
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo("^C")
            continue
        shell.history.append(line)
        try:
            words = shlex.split(line)
        except ValueError as error:
            click.echo(f"{line}: {error}")
            continue
        if words and words[0] in _ENDS:
            return
        if words:
            shell.run(words)


def _set_up_editing(shell: Shell) -> None:
    with contextlib.suppress(ImportError):
        import readline

        def complete(text: str, state: int) -> str | None:
            begun = readline.get_line_buffer()[: readline.get_begidx()].strip()
            found = shell.complete(text) if begun else [n for n in shell.commands if n.startswith(text)]
            return found[state] if state < len(found) else None

        readline.set_completer_delims(" \t")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")
