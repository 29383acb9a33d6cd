"""The frame of all tools: flags as Kafka's tools parse them, the session of one run, and failures as one line.

Flags are spelled as Kafka's parsers take them: `--flag value`, `--flag=value`, any unambiguous beginning of a
flag's name. A wrong flag or a failed request ends in one line on standard error and exit code 1.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from ottla import __version__
from ottla.cli.refuse import describe_os_error, refuse
from ottla.cli.tools.failures import UsageProblem, no_broker_text
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.cli.profiles import Profile

BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP"
PROFILE_VARIABLE: Final = "OTTLA_PROFILE"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_PORT: Final = 9092
DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_BACKOFF_S: Final = 0.1
DEFAULT_BACKOFF_MAX_S: Final = 1.0
_LOOK_EACH: Final = 0xFF
_BAR_EACH_S: Final = 0.2

T = TypeVar("T")


class Flags:
    """The values of a tool's flags, by their names with underscores. Each tool declares the types of its own."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


F = TypeVar("F", bound=Flags)
_Command = Callable[..., None]
Decorator = Callable[[_Command], _Command]
"""Adds an option or an argument to a command."""


class Session:
    """One run of a tool: its cluster, its settings and its output."""

    def __init__(
        self, bootstrap: str, properties: dict[str, str], *, as_json: bool, to_controllers: bool
    ) -> None:
        self.bootstrap = bootstrap
        self.address_given = False
        self.to_controllers = to_controllers
        self.properties = properties
        self.as_json = as_json
        self.exit_code = 0
        self.timeout_s: float | None = None
        """How long a request may take, in place of default.api.timeout.ms; set it before the first request."""

    @functools.cached_property
    def cluster(self) -> Cluster:
        """The cluster client, which connects at its first request."""
        from ottla.admin.cluster import Cluster
        from ottla.admin.settings import ClusterSettings
        from ottla.cli.tools.security import security

        timeout_s = self._seconds("default.api.timeout.ms", DEFAULT_TIMEOUT_S)
        return Cluster(
            ClusterSettings(
                bootstrap=tuple(parse_bootstrap(self.bootstrap)),
                client_id=self.properties.get("client.id", "ottla"),
                request_timeout_s=timeout_s if self.timeout_s is None else self.timeout_s,
                retry_backoff_s=self._seconds("retry.backoff.ms", DEFAULT_BACKOFF_S),
                retry_backoff_max_s=self._seconds("retry.backoff.max.ms", DEFAULT_BACKOFF_MAX_S),
                security=security(self.properties),
            )
        )

    def _seconds(self, key: str, default_s: float) -> float:
        """A property in milliseconds; the default if it is missing or no number."""
        text = self.properties.get(key, "")
        return int(text) / 1000 if text.isdecimal() else default_s

    def print(self, text: str = "", end: str = "\n") -> None:
        """Print a line for people and scripts; with --json nothing is printed."""
        if not self.as_json:
            click.echo(text + end, nl=False)

    @property
    def at_terminal(self) -> bool:
        """Whether a person reads the output, not a program."""
        return not self.as_json and sys.stdout.isatty()

    def result(self, document: object, lines: Iterable[str]) -> None:
        """Print the result: as JSON with --json, as a table at a terminal, otherwise as lines."""
        if self.as_json:
            self.dump(document)
            return
        if self.at_terminal:
            from ottla.cli.tools import tables

            found = tables.as_rows(document)
            if found is not None:
                tables.show(*found)
                return
        for line in lines:
            click.echo(line)

    def rows(
        self, titles: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int], end: str = ""
    ) -> None:
        """Print a table: Kafka's columns for programs, each line with `end`, and a readable table at a terminal."""
        if self.at_terminal:
            from ottla.cli.tools import tables

            tables.show(titles, rows)
            return
        from ottla.cli.tools.columns import row

        for cells in [titles, *rows]:
            self.print(row(cells, widths) + end)

    def dump(self, document: object) -> None:
        """Print a document as JSON."""
        import json

        click.echo(json.dumps(document, ensure_ascii=False))

    def progress(self, work: Iterable[T], count: int) -> Iterator[T]:
        """The same work, with a progress bar at a terminal."""
        if self.as_json or not sys.stderr.isatty():
            yield from work
            return
        with click.progressbar(length=count, file=sys.stderr, show_pos=True) as bar:
            done, shown = 0, time.monotonic()
            for each in work:
                yield each
                done += 1
                if not done & _LOOK_EACH and time.monotonic() - shown > _BAR_EACH_S:
                    bar.update(done - bar.pos)
                    shown = time.monotonic()
            bar.update(done - bar.pos)

    def warn(self, text: str) -> None:
        """Print a line to standard error, apart from the output."""
        click.echo(text, err=True)

    def error(self, text: str) -> None:
        """Print an error and go on with the rest; the exit code becomes 1."""
        self.exit_code = 1
        self.warn(f"ottla: {text}")


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Addresses from `host:port,host:port`; a host without a port has Kafka's."""
    addresses: list[tuple[str, int]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, port = _split_address(word.rpartition("://")[2])
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageProblem(f"'{word}' is not an address: expected HOST:PORT")
        addresses.append((host, int(port)))
    if not addresses:
        raise UsageProblem("--bootstrap-server needs an address, as in localhost:9092")
    return addresses


def _split_address(word: str) -> tuple[str, str]:
    if word.startswith("["):
        host, _, rest = word[1:].partition("]")
        return host, rest.removeprefix(":") or str(DEFAULT_PORT)
    host, colon, port = word.rpartition(":")
    return (host, port) if colon else (word, str(DEFAULT_PORT))


class Tool(click.Command):
    """A command whose flags are read as Kafka's tools read theirs."""

    greedy: frozenset[str] = frozenset()
    """Flags that take all the values up to the next flag, as in `--producer-props acks=1 linger.ms=5`."""

    aliases: Mapping[str, str] = {}
    """Other names of flags that only this tool has."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            refuse_usage(f"ottla {info_name}", error)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._spelled_out(args))

    def _spelled_out(self, args: Sequence[str]) -> list[str]:
        """Abbreviated flags in full, and one flag per value for greedy ones."""
        options = {
            word: param for param in self.params if isinstance(param, click.Option) for word in param.opts
        }
        result: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            word = self.aliases.get(word, word)
            if word == "--":
                return [*result, word, *rest]
            if not word.startswith("--"):
                result.append(word)
                continue
            name, equals, value = word.partition("=")
            name = _full_name(name, options)
            result.append(name + equals + value)
            option = options.get(name)
            if option is None or option.is_flag or equals:
                continue
            if name in self.greedy:
                result.pop()
                while rest and not rest[0].startswith("--"):
                    result += [name, rest.pop(0)]
            elif rest and option.flag_value in (None, False):
                result.append(rest.pop(0))
        return result

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            refuse_usage(ctx.command_path, error)
        except ApiException as error:
            from ottla.admin.connection import ConnectionFailed

            if isinstance(error, ConnectionFailed):
                refuse(no_broker_text(error))
            refuse(error.message or error.code.name)
        except (BrokenPipeError, KeyboardInterrupt):
            raise
        except OSError as error:
            refuse(describe_os_error(error))


def _full_name(name: str, options: Iterable[str]) -> str:
    if name in options:
        return name
    candidates = [option for option in options if option.startswith(name)]
    return candidates[0] if len(candidates) == 1 else name


def refuse_usage(path: str, error: click.UsageError) -> NoReturn:
    """End with the mistake in the flags, and where to read about them."""
    refuse(f"{error.format_message().rstrip('.')}; see `{path} --help`")


def tool(
    name: str,
    *options: Decorator,
    greedy: Iterable[str] = (),
    aliases: Mapping[str, str] | None = None,
    controllers: bool = False,
    broker_list: bool = True,
    offline: bool = False,
) -> Callable[[Callable[[Session, F], None]], Tool]:
    """Makes a tool of a function that takes a session and its flags."""

    def decorate(function: Callable[[Session, F], None]) -> Tool:
        @functools.wraps(function)
        def run(**values: object) -> None:
            session = open_session(values)
            function(session, cast("F", Flags(**values)))
            if session.exit_code:
                sys.exit(session.exit_code)

        wrapped: _Command = run
        common = _OUTPUT_OPTIONS if offline else _common_options(controllers, broker_list)
        for option in reversed([*options, *common]):
            wrapped = option(wrapped)
        settings = {"help_option_names": ["--help", "-h"], "max_content_width": 110}
        command: Tool = click.command(name, cls=Tool, context_settings=settings)(wrapped)
        _complete_names(command)
        command.greedy = frozenset(greedy)
        command.aliases = aliases or {}
        return command

    return decorate


def _complete_names(command: click.Command) -> None:
    """Let a shell complete what names topics, groups and profiles."""
    for param in command.params:
        function = _COMPLETED.get(param.name or "")
        if function is not None:
            param._custom_shell_complete = _completing(function)


_COMPLETED: Final = {
    **dict.fromkeys(("topic", "input_topic", "topics", "topic_list"), "complete_topics"),
    **dict.fromkeys(("group", "application_id"), "complete_groups"),
    "profile": "complete_profiles",
}
"""Flags that a shell can complete, and the function that knows the names."""


def _completing(name: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """A completion that is loaded when a shell asks for it."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ottla.cli.tools import name_completion

        found: list[str] = getattr(name_completion, name)(ctx, param, incomplete)
        return [CompletionItem(word) for word in found]

    return complete


_OUTPUT_OPTIONS: Final[list[Decorator]] = [
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.version_option(__version__, message="%(version)s"),
]


def _common_options(controllers: bool, broker_list: bool) -> list[Decorator]:
    options: list[Decorator] = [
        click.option("--bootstrap-server", metavar="HOST:PORT,...", help="The cluster's brokers."),
        click.option("--command-config", metavar="FILE", help="Properties file with client settings."),
        click.option("--profile", metavar="NAME", help="The cluster of this name; see `ottla profile`."),
        click.option("--zookeeper", metavar="HOST:PORT", hidden=True),
        *_OUTPUT_OPTIONS,
    ]
    if controllers:
        help_text = "The cluster's controllers, in place of its brokers."
        options.append(click.option("--bootstrap-controller", metavar="HOST:PORT,...", help=help_text))
    if broker_list:
        options.append(click.option("--broker-list", "old_broker_list", metavar="HOST:PORT,...", hidden=True))
    return options


def open_session(values: dict[str, object], *, quiet: bool = False) -> Session:
    """Take the flags that all tools have out of the values."""
    given, controllers = _text(values, "bootstrap_server"), _text(values, "bootstrap_controller")
    old_list, profile_name = _text(values, "old_broker_list"), _text(values, "profile")
    advice: list[str] = []
    if given and controllers:
        raise UsageProblem("only one of --bootstrap-server and --bootstrap-controller can be given")
    if values.pop("zookeeper", None):
        advice.append("There is no ZooKeeper any more: --zookeeper is ignored, use --bootstrap-server.")
    properties: dict[str, str] = {}
    # The old names stay among the flags of their tools, and count for all of a tool's connections.
    old_files = [values.get(name) for name in ("producer_config", "consumer_config")]
    for file in (_text(values, "command_config"), *old_files):
        if file:
            from ottla.cli.properties_file import read_client_properties

            properties |= read_client_properties(str(file))
    address = given or controllers or properties.get("bootstrap.servers")
    if not address and old_list:
        advice.append("--broker-list is the old name of --bootstrap-server.")
        address = old_list
    profile = _profile(profile_name, address)
    if profile is not None:
        address, properties = address or profile.bootstrap, {**profile.properties, **properties}
    if not quiet:
        for line in advice:
            click.echo(line, err=True)
    bootstrap = address or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    session = Session(
        bootstrap, properties, as_json=bool(values.pop("as_json")), to_controllers=controllers is not None
    )
    session.address_given = bool(given or controllers)
    return session


def _text(values: dict[str, object], name: str) -> str | None:
    """Take the value of a text flag out of the values."""
    value = values.pop(name, None)
    return None if value is None else str(value)


def _profile(name: str | None, address: str | None) -> Profile | None:
    """The named profile, or the current one if neither a name nor an address is given.

    Credentials must not go to a cluster that they are not for.
    """
    name = name or os.environ.get(PROFILE_VARIABLE)
    if not name and (address or os.environ.get(BOOTSTRAP_VARIABLE)):
        return None
    from ottla.cli import profiles

    known = profiles.load()
    name = name or known.current
    return known.named(name) if name else None


def require(flags: Flags, *names: str) -> None:
    """Refuse the call if one of these flags is missing."""
    for name in names:
        if not given(flags, name):
            raise click.UsageError(f"{_flag(name)} is required here")


def exactly_one(flags: Flags, *names: str) -> str:
    """The one of these flags that is given; refuse none and several."""
    found = [name for name in names if given(flags, name)]
    if len(found) != 1:
        raise click.UsageError(f"exactly one of {', '.join(map(_flag, names))} is needed")
    return found[0]


def only_with(flags: Flags, name: str, *companions: str) -> None:
    """Refuse a flag that is given without any of those that give it a meaning."""
    if given(flags, name) and not any(given(flags, other) for other in companions):
        raise click.UsageError(f"{_flag(name)} can only be used with {' or '.join(map(_flag, companions))}")


def not_with(flags: Flags, name: str, *others: str) -> None:
    """Refuse two flags that contradict each other."""
    for other in others:
        if given(flags, name) and given(flags, other):
            raise click.UsageError(f"{_flag(name)} can't be used with {_flag(other)}")


def given(flags: Flags, name: str) -> bool:
    value = getattr(flags, name)
    return value is not None and value is not False and value != ()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
