"""Writes the parts of the reference that come from the code: configuration keys and commands.

The documentation build puts them where a page says `<!-- generated: NAME -->` (see `docs_hooks.py`).
`python scripts/reference_pages.py NAME` prints one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

import ottla.config
from ottla.cli.areas import by_area
from ottla.cli.main import main as ottla_command
from ottla.config.acted_on import ACTED_ON
from ottla.config.definitions import BROKER_KEYS, TOPIC_KEYS, ConfigDef
from ottla.config.documentation import Scope, documentation
from ottla.config.synonyms import TOPIC_SYNONYMS
from ottla.controller.resource_configs import CLIENT_METRICS_KEYS, GROUP_KEYS

_TABLE: Final = Path(ottla.config.__file__).with_name("configs.jsonl")
_ROWS: Final = [msgspec.json.decode(line) for line in _TABLE.read_bytes().splitlines()]
_VALID: Final = {(row["scope"], row["name"]): row.get("valid") or "" for row in _ROWS}


def broker_keys() -> str:
    """The broker keys that have an effect."""
    rows = [_key_row("broker", BROKER_KEYS[name]) for name in sorted(ACTED_ON)]
    return _table(("Key", "Type", "Default", "Valid values", "Changes", "Meaning"), rows)


def topic_keys() -> str:
    """The topic keys, with the broker keys that they fall back to."""
    rows = []
    for name, key in sorted(TOPIC_KEYS.items()):
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in TOPIC_SYNONYMS.get(name, ()))
        rows.append([*_key_row("topic", key)[:-2], synonyms, documentation("topic", name)])
    return _table(("Key", "Type", "Default", "Valid values", "Falls back to", "Meaning"), rows)


def group_keys() -> str:
    """The keys of one group."""
    return _own_keys("group", GROUP_KEYS)


def client_metrics_keys() -> str:
    """The keys of a subscription to clients' metrics."""
    return _own_keys("client-metrics", CLIENT_METRICS_KEYS)


def _own_keys(scope: Scope, keys: Mapping[str, ConfigDef]) -> str:
    rows = [[*_key_row(scope, key)[:3], documentation(scope, name)] for name, key in sorted(keys.items())]
    return _table(("Key", "Type", "Default", "Meaning"), rows)


def keys_without_effect() -> str:
    """Kafka's broker keys that are accepted with a warning."""
    names = sorted(name for name, key in BROKER_KEYS.items() if name not in ACTED_ON and not key.internal)
    return "\n".join(f"- `{name}`: {documentation('broker', name)}" for name in names)


def commands() -> str:
    """Every command with its flags, by area."""
    context = click.Context(ottla_command, info_name="ottla")
    pieces = []
    for title, entries in by_area(ottla_command.list_commands(context)):
        pieces.append(f"## {title}")
        for name, _ in entries:
            command = ottla_command.get_command(context, name)
            if command is not None:
                pieces += _command(command, f"ottla {name}", context, level=3)
    return "\n\n".join(pieces)


def _command(command: click.Command, name: str, parent: click.Context, level: int) -> Iterable[str]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield f"{'#' * level} {name}"
    text = " ".join((command.help or "").split())
    if text:
        yield _escaped(text)
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    words = [one.make_metavar(context) for one in arguments]
    rest = "COMMAND ..." if isinstance(command, click.Group) else "[OPTIONS]" if options else ""
    yield "\n".join(("```text", " ".join(filter(None, (name, rest, *words))), "```"))
    rows = [(f"`{flags}`", _escaped(text)) for one in options for flags, text in (_option(one, context),)]
    if rows:
        yield _table(("Flag", "Meaning"), rows)
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found is not None:
                yield from _command(found, f"{name} {sub}", context, level + 1)


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    record = option.get_help_record(context)
    flags, text = record if record is not None else (", ".join(option.opts), "")
    return " ".join(flags.split()), " ".join(text.split())


def _key_row(scope: Scope, key: ConfigDef) -> list[str]:
    default = "required" if key.required else "null" if key.default is None else f"`{key.default}`"
    valid = _VALID.get((scope, key.name), "")
    return [
        f"`{key.name}`",
        key.type.name.lower(),
        default if default != "``" else "empty",
        f"`{valid}`" if valid else "",
        key.update_mode.value,
        documentation(scope, key.name),
    ]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def _escaped(text: str) -> str:
    """Help texts are plain: what Markdown or HTML would read as markup is shown as it is."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        for sign in "\\*_<[":
            parts[at] = parts[at].replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return "`".join(parts)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "broker-keys": broker_keys,
    "topic-keys": topic_keys,
    "group-keys": group_keys,
    "client-metrics-keys": client_metrics_keys,
    "keys-without-effect": keys_without_effect,
    "commands": commands,
}

if __name__ == "__main__":
    sys.stdout.write(PARTS[sys.argv[1]]() + "\n")
