"""`ottla profile`: keeps clusters by name, so that no address and no password needs to be typed twice."""

from __future__ import annotations

import json

import click

from ottla.cli import profiles
from ottla.cli.properties_file import read_properties
from ottla.cli.refuse import refuse, refusing


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["--help", "-h"]})
@click.pass_context
def profile(ctx: click.Context) -> None:
    """Clusters by name: `--profile NAME` or OTTLA_PROFILE lets every tool use one."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_profiles)


@profile.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@refusing
def list_profiles(as_json: bool = False) -> None:
    """List the profiles; a star marks the current one."""
    known = profiles.load()
    if as_json:
        found = [
            {"name": name, "bootstrap": each.bootstrap, "current": name == known.current}
            for name, each in sorted(known.by_name.items())
        ]
        click.echo(json.dumps(found))
        return
    if not known.by_name:
        click.echo("There are no profiles yet: ottla profile set NAME --bootstrap-server HOST:PORT")
    width = max(map(len, known.by_name), default=0)
    for name, each in sorted(known.by_name.items()):
        click.echo(f"{'*' if name == known.current else ' '} {name.ljust(width)}  {each.bootstrap}")


@profile.command("set")
@click.argument("name")
@click.option("--bootstrap-server", metavar="HOST:PORT,...", help="The cluster's brokers.")
@click.option("--command-config", metavar="FILE", help="Take the settings of this properties file.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A client setting; no value drops it."
)
@click.option("--user", metavar="NAME", help="Log in with SASL PLAIN as this user; asks for the password.")
@refusing
def set_profile(
    name: str,
    bootstrap_server: str | None,
    command_config: str | None,
    settings: tuple[str, ...],
    user: str | None,
) -> None:
    """Make or change a profile."""
    known = profiles.load()
    properties = read_properties(command_config) if command_config else {}
    address = bootstrap_server or properties.pop("bootstrap.servers", None)
    if name not in known.by_name:
        if address is None:
            refuse("a new profile needs --bootstrap-server")
        known.by_name[name] = profiles.Profile(address)
    each = known.by_name[name]
    each.bootstrap = address or each.bootstrap
    each.properties |= properties
    for word in settings:
        key, _, value = word.partition("=")
        if value:
            each.properties[key.strip()] = value
        else:
            each.properties.pop(key.strip(), None)
    if user is not None:
        password = click.prompt(f"Password of {user}", hide_input=True)
        each.properties |= {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
        each.properties.setdefault("security.protocol", "SASL_PLAINTEXT")
    known.current = known.current or name
    profiles.save(known)
    click.echo(f"Profile {name} is kept in {profiles.path()}.")


@profile.command("use")
@click.argument("name")
@refusing
def use_profile(name: str) -> None:
    """Make a profile the current one."""
    known = profiles.load()
    known.named(name)
    known.current = name
    profiles.save(known)
    click.echo(f"{name} is used from now on.")


@profile.command("show")
@click.argument("name", required=False)
@click.option("--reveal", is_flag=True, help="Show passwords too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@refusing
def show_profile(name: str | None, reveal: bool, as_json: bool) -> None:
    """Show a profile; without a name, the current one."""
    known = profiles.load()
    name = name or known.current
    if name is None:
        refuse("there are no profiles yet: ottla profile set NAME --bootstrap-server HOST:PORT")
    each = known.named(name)
    settings = each.properties if reveal else profiles.shown(each.properties)
    if as_json:
        click.echo(json.dumps({"name": name, "bootstrap": each.bootstrap, "properties": settings}))
        return
    for key, value in {"bootstrap.servers": each.bootstrap, **settings}.items():
        click.echo(f"{key}={value}")


@profile.command("remove")
@click.argument("name")
@refusing
def remove_profile(name: str) -> None:
    """Forget a profile."""
    known = profiles.load()
    known.named(name)
    del known.by_name[name]
    if known.current == name:
        known.current = None
    profiles.save(known)
    click.echo(f"Profile {name} is forgotten.")
