"""The commands of `ottla secure` and their flags."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from ottla.cli.refuse import refusing
from ottla.cli.secure.folder import SecureFolder

_Command = Callable[..., None]


def _folder(command: _Command) -> _Command:
    return click.option(
        "--dir",
        "folder",
        default=".",
        show_default=True,
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        help="The folder of `ottla secure init`.",
    )(command)


def _bootstrap(command: _Command) -> _Command:
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT,...",
        help="In place of what admin.properties names.",
    )(command)


_DAYS = click.option("--days", default=365, show_default=True, help="How long the certificates are valid.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def secure() -> None:
    """Make a secured cluster, its users and its tenants; renew and check what was made."""


@secure.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--nodes", default=3, show_default=True, help="How many nodes; each is broker and controller.")
@click.option(
    "--hosts", default="", metavar="HOST[:PORT],...", help="One for each node. [default: localhost]"
)
@click.option(
    "--target", metavar="PATH", type=click.Path(path_type=Path), help="Where the files will lie on the nodes."
)
@_DAYS
@refusing
def init(folder: Path, nodes: int, hosts: str, target: Path | None, days: int) -> None:
    """Make an authority, certificates, an administrator and strict properties in a new folder."""
    from ottla.cli.secure.init import init_cluster

    words = [word.strip() for word in hosts.split(",") if word.strip()]
    init_cluster(folder, nodes=nodes, hosts=words, target=target, days=days, echo=click.echo)


@secure.group()
def user() -> None:
    """Add, remove and list users."""


@user.command("add")
@click.argument("name")
@_folder
@_bootstrap
@refusing
def user_add(name: str, folder: Path, bootstrap: str | None) -> None:
    """Add a user with a random password, and write NAME.properties."""
    from ottla.cli.secure.users import add_user

    add_user(SecureFolder(folder.absolute()), name, bootstrap, click.echo)


@user.command("remove")
@click.argument("name")
@_folder
@_bootstrap
@refusing
def user_remove(name: str, folder: Path, bootstrap: str | None) -> None:
    """Remove a user with its ACLs, its quotas and NAME.properties."""
    from ottla.cli.secure.users import remove_user

    remove_user(SecureFolder(folder.absolute()), name, bootstrap, click.echo)


@user.command("list")
@_folder
@_bootstrap
@refusing
def user_list(folder: Path, bootstrap: str | None) -> None:
    """List users and how their passwords are kept."""
    from ottla.cli.secure.users import list_users

    list_users(SecureFolder(folder.absolute()), bootstrap, click.echo)


@secure.group()
def tenant() -> None:
    """Add and remove tenants: users with names and rates of their own."""


@tenant.command("add")
@click.argument("name")
@click.option(
    "--prefix", required=True, help="What the tenant's topics, groups and transactional ids begin with."
)
@click.option(
    "--produce", metavar="RATE", help="How much it may write in a second to each broker, as in 10MB."
)
@click.option("--consume", metavar="RATE", help="How much it may read in a second from each broker.")
@click.option(
    "--requests", type=float, metavar="PERCENT", help="How much of one core of each broker it may use."
)
@_folder
@_bootstrap
@refusing
def tenant_add(
    name: str,
    prefix: str,
    produce: str | None,
    consume: str | None,
    requests: float | None,
    folder: Path,
    bootstrap: str | None,
) -> None:
    """Add a user with all rights on names that begin with a prefix, and with quotas."""
    from ottla.cli.secure.users import TenantLimits, add_tenant

    limits = TenantLimits(produce, consume, requests)
    add_tenant(SecureFolder(folder.absolute()), name, prefix, limits, bootstrap, click.echo)


@tenant.command("remove")
@click.argument("name")
@_folder
@_bootstrap
@refusing
def tenant_remove(name: str, folder: Path, bootstrap: str | None) -> None:
    """Remove the tenant's user, ACLs and quotas. Its topics stay."""
    from ottla.cli.secure.users import remove_user

    remove_user(SecureFolder(folder.absolute()), name, bootstrap, click.echo)


@secure.command()
@_folder
@_DAYS
@refusing
def renew(folder: Path, days: int) -> None:
    """Make new keys and certificates with the names of the old ones."""
    from ottla.cli.secure.renew import renew_certificates

    renew_certificates(SecureFolder(folder.absolute()), days, click.echo)


@secure.command()
@_folder
@_bootstrap
@click.option("--offline", is_flag=True, help="Look at the files only, not at the cluster.")
@refusing
def check(folder: Path, bootstrap: str | None, offline: bool) -> None:
    """Say what is not safe: files, certificates, settings, ACLs and users. Exit code 1 if anything is."""
    from ottla.cli.secure.check import check_cluster, check_files

    place = SecureFolder(folder.absolute())
    problems = check_files(place)
    if not offline:
        problems += check_cluster(place, bootstrap)
    for problem in problems:
        click.echo(f"- {problem}")
    if any(problem.risk for problem in problems):
        sys.exit(1)
    click.echo("Nothing found that is not safe.")
