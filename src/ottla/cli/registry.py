"""`ottla registry`: starts a schema registry on a cluster, and hashes passwords for its file of users."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.refuse import describe_os_error, refuse
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.settings import ClusterSettings
    from ottla.registry.serve import RegistrySettings


@click.group(invoke_without_command=True)
@click.option("--bootstrap-server", metavar="HOST:PORT,...", help="The cluster.  [default: localhost:9092]")
@click.option(
    "--command-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A properties file with the cluster's security settings.",
)
@click.option(
    "--listen", default="localhost:8081", show_default=True, metavar="HOST:PORT", help="Where to answer."
)
@click.option("--advertised-host", help="The host by which other registries reach this one.")
@click.option("--topic", default="_schemas", show_default=True, help="The topic that holds the schemas.")
@click.option(
    "--group", default="schema-registry", show_default=True, help="The group that elects the leader."
)
@click.option(
    "--replication-factor", default=3, show_default=True, type=click.IntRange(1), help="Of a new topic."
)
@click.option(
    "--compatibility", default="BACKWARD", show_default=True, help="The level where none is configured."
)
@click.option("--follower-only", is_flag=True, help="Never lead: forward every write.")
@click.option(
    "--session-timeout-ms",
    default=10_000,
    show_default=True,
    type=click.IntRange(1_000, 300_000),
    help="How long a leader may be silent before another one is elected.",
)
@click.option(
    "--users", type=click.Path(dir_okay=False, path_type=Path), help="A TOML file of users and roles."
)
@click.option(
    "--tls-cert", type=click.Path(dir_okay=False, path_type=Path), help="A certificate chain (PEM)."
)
@click.option("--tls-key", type=click.Path(dir_okay=False, path_type=Path), help="Its private key (PEM).")
@click.pass_context
def registry(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: Path | None,
    listen: str,
    advertised_host: str | None,
    topic: str,
    group: str,
    replication_factor: int,
    compatibility: str,
    follower_only: bool,
    session_timeout_ms: int,
    users: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Run a schema registry with Confluent's REST interface."""
    if ctx.invoked_subcommand is not None:
        return
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        refuse("the registry needs more packages: pip install 'ottla[registry]'")
    from ottla.registry.registry import LEVELS
    from ottla.registry.rest.auth import UsersFileError, load
    from ottla.registry.serve import RegistrySettings

    if compatibility.upper() not in LEVELS:
        refuse(f"--compatibility {compatibility} is not a level; use one of {', '.join(LEVELS)}")
    if (tls_cert is None) != (tls_key is None):
        refuse("--tls-cert and --tls-key go together")
    host, port = _address(listen)
    try:
        found = load(users) if users else None
    except UsersFileError as error:
        refuse(str(error))
    settings = RegistrySettings(
        _cluster_settings(bootstrap_server, command_config),
        host,
        port,
        advertised_host,
        topic,
        group,
        replication_factor,
        session_timeout_ms,
        not follower_only,
        compatibility.upper(),
        found,
        tls_cert,
        tls_key,
    )
    _run(settings, listen)


@registry.command()
@click.password_option()
def passwd(password: str) -> None:
    """Print the hash of a password for the file of users."""
    from ottla.registry.rest.auth import hash_password

    click.echo(hash_password(password))


def _run(settings: RegistrySettings, listen: str) -> None:
    from ottla.registry.serve import serve

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    def started(url: str) -> None:
        click.echo(f"Schema registry on {url}, topic {settings.topic}")
        sys.stdout.flush()

    try:
        try:
            import uvloop

            uvloop.run(serve(settings, started))
        except ImportError:
            asyncio.run(serve(settings, started))
    except KeyboardInterrupt:
        return
    except OSError as error:
        refuse(f"cannot listen on {listen}: {describe_os_error(error)}")
    except ApiException as error:
        refuse(str(error))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        refuse(f"--listen {text} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)


def _cluster_settings(bootstrap: str | None, config: Path | None) -> ClusterSettings:
    from ottla.admin.settings import ClusterSettings
    from ottla.cli.properties_file import read_properties
    from ottla.cli.tools.base import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, parse_bootstrap
    from ottla.cli.tools.failures import UsageProblem
    from ottla.cli.tools.security import security
    from ottla.config.errors import ConfigError

    try:
        properties = read_properties(str(config)) if config else {}
        addresses = parse_bootstrap(bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP)
    except (ConfigError, UsageProblem) as error:
        refuse(str(error))
    return ClusterSettings(
        bootstrap=tuple(addresses),
        client_id=properties.get("client.id", "ottla-registry"),
        bootstrap_timeout_s=10.0,
        request_timeout_s=20.0,
        security=security(properties),
    )
