"""`ottla schemas`: looks at the schemas of a registry and changes them, on any registry with Confluent's REST."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import click

from ottla.errors import ApiException
from ottla.json_types import Json, JsonObject, as_list, as_object, as_text

if TYPE_CHECKING:
    from ottla.schemas.client import Registry

_DEFAULT: Final = "http://localhost:8081"
_TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
_MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


class _Commands(click.Group):
    """Shows errors as one line, and ends with 1."""

    def invoke(self, ctx: click.Context) -> object:
        from ottla.schemas.errors import SchemaError

        try:
            return super().invoke(ctx)
        except (SchemaError, ApiException, ValueError) as error:
            click.echo("ottla schemas: " + " ".join(str(error).split()), err=True)
            sys.exit(1)


@click.group(cls=_Commands)
@click.option(
    "--schema-registry",
    envvar="OTTLA_SCHEMA_REGISTRY",
    metavar="URL",
    help=f"The registry.  [default: that of the profile, else {_DEFAULT}]",
)
@click.option("--command-config", metavar="FILE", help="A properties file with `basic.auth.user.info`.")
@click.option("--profile", metavar="NAME", help="The cluster of this name; see `ottla profile`.")
@click.option("--json", "as_json", is_flag=True, help="Print the registry's answers as JSON.")
@click.pass_context
def schemas(
    ctx: click.Context,
    schema_registry: str | None,
    command_config: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Look at the schemas of a registry and change them: of Ottla's, or of Confluent's."""
    from ottla.cli import profiles
    from ottla.cli.properties_file import read_client_properties
    from ottla.schemas.client import Registry

    properties: dict[str, str] = {}
    known = profiles.load()
    name = profile or (None if schema_registry else known.current)
    if name:
        properties |= known.named(name).properties
    if command_config:
        properties |= read_client_properties(command_config)
    if schema_registry:
        properties["schema.registry.url"] = schema_registry
    properties.setdefault("schema.registry.url", _DEFAULT)
    ctx.obj = (Registry.of(properties), as_json)
    ctx.call_on_close(ctx.obj[0].close)


def _ask(ctx: click.Context, method: str, path: str, body: Json = None, *, about: str = "") -> Json:
    registry: Registry = ctx.obj[0]
    return registry.ask(method, path, body, about=about)


def _show(ctx: click.Context, answer: Json, text: str) -> None:
    click.echo(json.dumps(answer, indent=2) if ctx.obj[1] else text)


def _subject(name: str, *more: str) -> str:
    return "/".join(("/subjects", quote(name, safe=""), *more))


@schemas.command("list")
@click.option("--prefix", default="", help="Only subjects whose names begin so.")
@click.option("--deleted", is_flag=True, help="Also those that are deleted and may come back.")
@click.pass_context
def list_subjects(ctx: click.Context, prefix: str, deleted: bool) -> None:
    """List subjects with the newest version of each."""
    query = urlencode({"subjectPrefix": prefix, "latestOnly": "true", "deleted": str(deleted).lower()})
    answer = as_list(_ask(ctx, "GET", f"/schemas?{query}", about="its schemas"), "the answer")
    found = [as_object(one, "a schema") for one in answer]
    rows = [("SUBJECT", "VERSION", "ID", "TYPE")]
    rows += [
        (str(one["subject"]), str(one["version"]), str(one["id"]), str(one.get("schemaType", "AVRO")))
        for one in sorted(found, key=lambda one: str(one["subject"]))
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    _show(ctx, answer, "\n".join(line.rstrip() for line in lines))


@schemas.command()
@click.argument("subject", required=False)
@click.option("--version", default="latest", show_default=True, help="A version of the subject.")
@click.option("--id", "schema_id", type=int, help="In place of a subject: the schema with this id.")
@click.pass_context
def show(ctx: click.Context, subject: str | None, version: str, schema_id: int | None) -> None:
    """Print a schema; what it is goes to standard error."""
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give a subject, or --id")
    if subject is not None:
        path, about = _subject(subject, "versions", quote(version)), f"the subject {subject}"
    else:
        path, about = f"/schemas/ids/{schema_id}", f"the schema id {schema_id}"
    answer = as_object(_ask(ctx, "GET", path, about=about), "the answer")
    text, kind = as_text(answer.get("schema"), "schema"), str(answer.get("schemaType", "AVRO"))
    if not ctx.obj[1]:
        what = f"{answer['subject']} version {answer['version']}, id {answer['id']}" if subject else about
        references = as_list(answer.get("references") or [], "references")
        used = [as_object(one, "a reference") for one in references]
        places = ", ".join(f"{one['name']} = {one['subject']}:{one['version']}" for one in used)
        click.echo(f"{what}, {kind}" + (f", with {places}" if places else ""), err=True)
    _show(ctx, answer, text.rstrip("\n") if kind == "PROTOBUF" else json.dumps(json.loads(text), indent=2))


def _proposal(file: str, kind: str | None, references: tuple[str, ...]) -> JsonObject:
    """The body of a request with the schema of a file."""
    from ottla.schemas.client import schema_of_file

    text, known = schema_of_file(Path(file), kind)
    used: list[Json] = []
    for one in references:
        name, equals, place = one.partition("=")
        subject, _, version = place.rpartition(":")
        if not (equals and subject and version.isdecimal()):
            raise ValueError(f"--reference {one} is not NAME=SUBJECT:VERSION")
        used.append({"name": name, "subject": subject, "version": int(version)})
    return {"schema": text, "schemaType": known, **({"references": used} if used else {})}


@schemas.command()
@click.argument("subject")
@click.argument("file")
@click.option("--type", "kind", type=click.Choice(_TYPES), help="Where the file's name says none.")
@click.option(
    "--reference", "references", multiple=True, metavar="NAME=SUBJECT:VERSION", help="A schema that it uses."
)
@click.option("--normalize", is_flag=True, help="Store it in its normal form.")
@click.pass_context
def register(
    ctx: click.Context,
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[str, ...],
    normalize: bool,
) -> None:
    """Register the schema of a file under a subject."""
    body = _proposal(file, kind, references)
    path = _subject(subject, "versions") + ("?normalize=true" if normalize else "")
    answer = as_object(_ask(ctx, "POST", path, body, about=f"the subject {subject}"), "the answer")
    # Registries of before 8.0 answer with the id alone.
    held = (
        answer if "version" in answer else as_object(_ask(ctx, "POST", _subject(subject), body), "the answer")
    )
    _show(ctx, answer, f"{subject} version {held['version']}, id {answer['id']}")


@schemas.command()
@click.argument("subject")
@click.argument("file")
@click.option("--version", help="Compare with this version, not with those that the subject's level names.")
@click.option("--type", "kind", type=click.Choice(_TYPES), help="Where the file's name says none.")
@click.option(
    "--reference", "references", multiple=True, metavar="NAME=SUBJECT:VERSION", help="A schema that it uses."
)
@click.pass_context
def check(
    ctx: click.Context,
    subject: str,
    file: str,
    version: str | None,
    kind: str | None,
    references: tuple[str, ...],
) -> None:
    """Say whether the schema of a file could be registered, and why not. Ends with 1 if it could not."""
    path = "/".join(("/compatibility", *_subject(subject, "versions").strip("/").split("/")))
    path += f"/{quote(version)}" if version else ""
    body = _proposal(file, kind, references)
    answer = as_object(
        _ask(ctx, "POST", f"{path}?verbose=true", body, about=f"the subject {subject}"), "the answer"
    )
    if answer.get("is_compatible"):
        _show(ctx, answer, f"{file} is compatible with {subject}")
        return
    reasons = [str(one) for one in as_list(answer.get("messages") or [], "messages")]
    _show(
        ctx,
        answer,
        "\n".join([f"{file} is not compatible with {subject}:", *(f"  {one}" for one in reasons)]),
    )
    ctx.exit(1)


@schemas.command()
@click.argument("subject")
@click.option("--version", help="One version; without it, all.")
@click.option("--permanent", is_flag=True, help="For good: of what is deleted already.")
@click.pass_context
def delete(ctx: click.Context, subject: str, version: str | None, permanent: bool) -> None:
    """Delete a subject or one version; both may come back until they are deleted with --permanent."""
    path = _subject(subject, "versions", quote(version)) if version else _subject(subject)
    path += "?permanent=true" if permanent else ""
    answer = _ask(ctx, "DELETE", path, about=f"the subject {subject}")
    gone = answer if isinstance(answer, list) else [answer]
    listed = ", ".join(map(str, gone))
    _show(ctx, answer, f"{subject}: version {listed} deleted" + (" for good" if permanent else ""))


@schemas.command()
@click.argument("subject", required=False)
@click.option("--set", "value", metavar="LEVEL", help="Change it.")
@click.option("--unset", is_flag=True, help="Remove it, so that that of the registry applies.")
@click.pass_context
def level(ctx: click.Context, subject: str | None, value: str | None, unset: bool) -> None:
    """Show or change the compatibility level: of a subject, else of the registry."""
    _setting(ctx, "config", "compatibility", subject, value, unset)


@schemas.command()
@click.argument("subject", required=False)
@click.option("--set", "value", type=click.Choice(_MODES, case_sensitive=False), help="Change it.")
@click.option("--unset", is_flag=True, help="Remove it, so that that of the registry applies.")
@click.pass_context
def mode(ctx: click.Context, subject: str | None, value: str | None, unset: bool) -> None:
    """Show or change the mode: of a subject, else of the registry."""
    _setting(ctx, "mode", "mode", subject, value, unset)


def _setting(
    ctx: click.Context, route: str, key: str, subject: str | None, value: str | None, unset: bool
) -> None:
    if value and unset:
        raise click.UsageError("--set and --unset exclude each other")
    path = f"/{route}" + (f"/{quote(subject, safe='')}" if subject else "")
    about = f"the subject {subject}" if subject else "the whole registry"
    if value:
        answer = _ask(ctx, "PUT", path, {key: value.upper()}, about=about)
    elif unset:
        _ask(ctx, "DELETE", path, about=about)
    if not value:
        answer = _ask(ctx, "GET", path + ("?defaultToGlobal=true" if subject else ""), about=about)
    found = as_object(answer, "the answer")
    _show(ctx, answer, str(found.get(key) or found.get("compatibilityLevel")))
