"""`ottla console`: the command, its options, and the server that it runs."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.refuse import describe_os_error, refuse, refusing
from ottla.console.settings import DEFAULT_HOST, DEFAULT_PORT, LOOPBACK, ConsoleSettings, Target
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.settings import ClusterSettings

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_NO_EXTRA: Final = "the console needs packages that are not installed: pip install 'ottla[console]'"
_NOBODY: Final = {"sasl.username": "nobody", "sasl.password": ""}
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(file_okay=False, exists=True, path_type=Path)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["--help", "-h"]})
@click.option("--bootstrap-server", metavar="HOST:PORT,...", help="The cluster's brokers.")
@click.option("--command-config", metavar="FILE", help="Properties file with client settings.")
@click.option(
    "--profile", "profile_names", multiple=True, metavar="NAME", help="A cluster by name; may be repeated."
)
@click.option(
    "--listen",
    default=f"{DEFAULT_HOST}:{DEFAULT_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where.",
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Another name under which browsers reach it."
)
@click.option("--users", type=_FILE, help="Users and roles (TOML).")
@click.option(
    "--login", type=click.Choice(("kafka",)), help="Sign in with a SASL user; the cluster's ACLs decide."
)
@click.option("--masks", type=_FILE, help="What nobody may see in records (TOML).")
@click.option("--audit", type=_FILE, help="One line of JSON per change and per reading of records.")
@click.option("--registry", metavar="URL", default="", help="The schema registry; else schema.registry.url.")
@click.option(
    "--connect", metavar="URL", default="", help="A Connect worker; else connect.url of the profile."
)
@click.option(
    "--applications", multiple=True, metavar="DIR|URL", help="Streams applications; may be repeated."
)
@click.option(
    "--prometheus", metavar="URL", default="", help="Charts of a week come from it; else prometheus.url."
)
@click.option("--data", type=_FOLDER, help="A broker's directory here: the tab Log shows its segments.")
@click.option("--snapshots", type=_FOLDER, help="A directory of snapshots to compare a cluster with.")
@click.option("--read-only", is_flag=True, help="Nothing can be changed.")
@click.option("--no-auth", is_flag=True, help="Another address than this machine's, without users.")
@click.option("--no-pages", is_flag=True, help="Only /metrics and /health: an exporter of lag.")
@click.option("--probe", is_flag=True, help="Time a record a second, from end to end, for /metrics.")
@click.option("--open", "open_browser", is_flag=True, help="Open a browser.")
@click.option("--log-level", type=click.Choice(_LOG_LEVELS), default="warning", show_default=True)
@click.pass_context
def console(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    profile_names: tuple[str, ...],
    listen: str,
    hosts: tuple[str, ...],
    users: Path | None,
    login: str | None,
    masks: Path | None,
    audit: Path | None,
    registry: str,
    connect: str,
    applications: tuple[str, ...],
    prometheus: str,
    data: Path | None,
    snapshots: Path | None,
    read_only: bool,
    no_auth: bool,
    no_pages: bool,
    probe: bool,
    open_browser: bool,
    log_level: str,
) -> None:
    """Look at clusters in a browser. It only speaks Kafka's protocol, and works on any Kafka."""
    if ctx.invoked_subcommand is not None:
        return
    logging.basicConfig(stream=sys.stderr, level=log_level.upper(), format=_LOG_FORMAT)
    try:
        host, port = _address(listen)
        settings = ConsoleSettings(
            targets=tuple(_targets(bootstrap_server, command_config, profile_names)),
            host=host,
            port=port,
            hosts=hosts,
            users=users,
            login=login or "",
            masks=masks,
            audit=audit,
            read_only=read_only,
            open_to_all=no_auth,
            pages=not no_pages,
            probe=probe,
            registry=registry,
            connect=connect,
            applications=applications,
            prometheus=prometheus,
            data=data,
            snapshots=snapshots,
        )
        check_address(settings)
        run(settings, open_browser=open_browser)
    except ApiException as error:
        refuse(error.message)
    except OSError as error:
        refuse(describe_os_error(error))


@console.command("passwd")
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="NAME", help="A role of the user; may be repeated.")
@refusing
def passwd(name: str, roles: tuple[str, ...]) -> None:
    """Ask for a password and print the lines of a users file."""
    from ottla.console.security.users import hash_password

    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    import json

    click.echo(f"[users.{json.dumps(name)}]")
    click.echo(f"password = {json.dumps(hash_password(password))}")
    click.echo(f"roles = {json.dumps(list(roles))}")


def check_address(settings: ConsoleSettings) -> None:
    """Refuse an address beyond this machine without a decision about who may look."""
    if settings.login and settings.users is not None:
        raise ApiException(
            ErrorCode.INVALID_REQUEST, "--users and --login kafka: people sign in with one of the two"
        )
    if settings.login and settings.probe:
        raise ApiException(
            ErrorCode.INVALID_REQUEST, "--probe needs a user of its own: it does not work with --login kafka"
        )
    asks = settings.users is not None or settings.login
    if not settings.is_loopback and not asks and not settings.open_to_all:
        raise ApiException(
            ErrorCode.INVALID_REQUEST,
            f"--listen {settings.host} can be reached from other machines: add --users FILE, --login kafka,"
            " or --no-auth if everyone there may do everything",
        )


def _address(text: str) -> tuple[str, int]:
    from ottla.cli.tools.base import parse_bootstrap
    from ottla.cli.tools.failures import UsageProblem

    host, colon, port = text.rpartition(":")
    if colon and port == "0":
        return host.strip("[]"), 0
    try:
        ((found, number),) = parse_bootstrap(text if colon else f"{text}:{DEFAULT_PORT}")
    except (UsageProblem, ValueError):
        raise UsageProblem(f"--listen {text}: expected HOST:PORT") from None
    return found, number


def _targets(bootstrap: str | None, config: str | None, names: tuple[str, ...]) -> list[Target]:
    from ottla.cli import profiles
    from ottla.cli.properties_file import read_properties
    from ottla.cli.tools.base import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, PROFILE_VARIABLE

    found: list[Target] = []
    properties = read_properties(config) if config else {}
    bootstrap = bootstrap or properties.get("bootstrap.servers")
    if bootstrap:
        found.append(Target(_name_of(bootstrap), bootstrap, properties))
    elif not names and os.environ.get(PROFILE_VARIABLE):
        names = (os.environ[PROFILE_VARIABLE],)
    known = profiles.load()
    if not found and not names and not os.environ.get(BOOTSTRAP_VARIABLE) and known.by_name:
        names = tuple(sorted(known.by_name, key=lambda name: (name != known.current, name)))
    for name in names:
        profile = known.named(name)
        found.append(Target(name, profile.bootstrap, {**profile.properties, **properties}))
    if found:
        return found
    bootstrap = os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    return [Target(_name_of(bootstrap), bootstrap, properties)]


def _name_of(bootstrap: str) -> str:
    """A name for a cluster that has no profile: its first host."""
    from ottla.cli.tools.base import parse_bootstrap

    host, _ = parse_bootstrap(bootstrap)[0]
    return "local" if host in LOOPBACK else host.replace(":", "-")


def cluster_settings(target: Target, login: str = "") -> ClusterSettings:
    """How the console reaches a cluster. With a login, those who sign in bring their names and passwords."""
    from ottla.admin.settings import ClusterSettings
    from ottla.cli.tools.base import parse_bootstrap
    from ottla.cli.tools.security import security

    return ClusterSettings(
        bootstrap=tuple(parse_bootstrap(target.bootstrap)),
        client_id=target.properties.get("client.id", "ottla-console"),
        security=security({**_NOBODY, **target.properties} if login else target.properties),
    )


def run(settings: ConsoleSettings, *, open_browser: bool = False) -> None:
    """Serve until a signal. Prints one line when it is ready."""
    try:
        from ottla.console.server import serve
    except ImportError as error:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"{_NO_EXTRA} ({error.name} is missing)") from None
    targets = {target.name: cluster_settings(target, settings.login) for target in settings.targets}
    listener = _bind(settings.host, settings.port)
    address = f"http://{_shown_host(settings.host)}:{listener.getsockname()[1]}"
    serving = serve(settings, targets, listener, lambda: _announce(address, settings, open_browser))
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


def _announce(address: str, settings: ConsoleSettings, open_browser: bool) -> None:
    click.echo(f"Look at it: {address}" if settings.pages else f"Lag of groups: {address}/metrics")
    if open_browser:
        click.launch(address)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ApiException(
            ErrorCode.INVALID_REQUEST,
            f"cannot listen on {host}:{port} ({error.strerror}); --listen HOST:PORT chooses another address",
        ) from None
    return listener


def _shown_host(host: str) -> str:
    if host in ("", "0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host
