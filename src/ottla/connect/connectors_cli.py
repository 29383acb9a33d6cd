"""`ottla connectors`: looks at connectors and changes them, on any Connect cluster, over REST."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from ottla.connect.failures import ConnectError
from ottla.connect.rest_client import RestClient, one
from ottla.connect.state import ConnectorStatus
from ottla.json_types import Json, JsonObject

_ORDER = ("FAILED", "RESTARTING", "UNASSIGNED", "PAUSED", "STOPPED", "RUNNING")


class _Commands(click.Group):
    """Shows errors as one line, and ends with 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConnectError as error:
            click.echo(f"ottla connectors: {error}", err=True)
            sys.exit(1)


@click.group(cls=_Commands)
@click.option(
    "--connect-url",
    envvar="OTTLA_CONNECT",
    default="http://localhost:8083",
    show_default=True,
    help="A worker of the cluster.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
@click.pass_context
def connectors(ctx: click.Context, connect_url: str, as_json: bool) -> None:
    """Look at connectors and change them: of Ottla's workers, or of Java's."""
    ctx.obj = (RestClient(connect_url), as_json)


def _show(ctx: click.Context, answer: Json, lines: list[str]) -> None:
    click.echo(json.dumps(answer, indent=2) if ctx.obj[1] else "\n".join(lines))


def _client(ctx: click.Context) -> RestClient:
    client: RestClient = ctx.obj[0]
    return client


def worst(status: ConnectorStatus) -> str:
    """The state that needs attention most, of the connector and its tasks."""
    states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
    found: str = min(states, key=lambda state: _ORDER.index(state) if state in _ORDER else 0)
    return found


def sentence(status: ConnectorStatus) -> str:
    """The first line of the first trace."""
    for part in (status["connector"], *status["tasks"]):
        if part.get("trace"):
            return str(part["trace"]).splitlines()[0]
    return ""


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _rows(found: Mapping[str, Mapping[str, ConnectorStatus]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("NAME", "TYPE", "STATE", "TASKS", "WORKER", "")]
    for name, answer in sorted(found.items()):
        status = answer["status"]
        worker = status["connector"]["worker_id"]
        rows.append(
            (name, status["type"], worst(status), str(len(status["tasks"])), worker, sentence(status)[:80])
        )
    return rows


@connectors.command("list")
@click.pass_context
def list_connectors(ctx: click.Context) -> None:
    """List connectors with their worst state."""
    found = _client(ctx).call("GET", "/connectors?expand=status")
    _show(ctx, found, _columns(_rows(found)))


@connectors.command()
@click.argument("file")
@click.pass_context
def create(ctx: click.Context, file: str) -> None:
    """Create the connector of a file, or change it; the configuration is validated first."""
    from ottla.connect.worker import read_connector_file

    name, config, state = read_connector_file(Path(file))
    client = _client(ctx)
    kind = str(config.get("connector.class", "")).rpartition(".")[2]
    found = client.call("PUT", f"/connector-plugins/{kind}/config/validate", config)
    errors = [text for part in found["configs"] for text in part["value"]["errors"]]
    if errors:
        raise ConnectError("the configuration has errors:\n  " + "\n  ".join(errors))
    if name in client.call("GET", "/connectors"):
        answer = client.call("PUT", one(name, "/config"), config)
        _show(ctx, answer, [f"connector {name} changed"])
        return
    body: JsonObject = {"name": name, "config": config}
    if state is not None:
        body["initial_state"] = state
    _show(ctx, client.call("POST", "/connectors", body), [f"connector {name} created"])


@connectors.command()
@click.argument("name", required=False)
@click.option("--follow", is_flag=True, help="Print the status again every second, until Ctrl-C.")
@click.option("--trace", is_flag=True, help="Print the whole trace of failures.")
@click.pass_context
def status(ctx: click.Context, name: str | None, follow: bool, trace: bool) -> None:
    """Show the state of one connector, or of all, with the last error in a sentence."""
    client = _client(ctx)
    while True:
        if name is None:
            found = client.call("GET", "/connectors?expand=status")
            lines = _columns(_progress_rows(client, found))
        else:
            found = client.call("GET", one(name, "/status"))
            lines = _status_lines(client, found, trace)
        _show(ctx, found, lines)
        if not follow:
            return
        threading.Event().wait(1.0)


def _progress_rows(
    client: RestClient, found: Mapping[str, Mapping[str, ConnectorStatus]]
) -> list[tuple[str, ...]]:
    """A line for each connector. Java's workers do not tell how far a connector is."""
    rows: list[tuple[str, ...]] = [("NAME", "STATE", "RECORDS/S", "BEHIND", "LAST CYCLE", "WORKER", "")]
    for name, answer in sorted(found.items()):
        status = answer["status"]
        rate = lag = last = "-"
        progress = _progress(client, name)
        if progress is not None:
            rate, lag = progress.rate, progress.lag or "-"
            if progress.at_ms is not None:
                last = f"{max(0, time.time_ns() // 1_000_000 - progress.at_ms) // 1000} s ago"
        shown = sentence(status)[:80]
        rows.append((name, worst(status), rate, lag, last, status["connector"]["worker_id"], shown))
    return rows


class _Progress(NamedTuple):
    records: str
    rate: str
    lag: str | None
    at_ms: int | None


def _progress(client: RestClient, name: str) -> _Progress | None:
    """How far a connector is; None from Java's workers."""
    try:
        found = client.call("GET", f"/ottla{one(name)}")
    except ConnectError:
        return None
    records, rate = f"{found['records']:,}", f"{found['records_per_second']:,}"
    return _Progress(records, rate, found["lag"], found["last_cycle_at"])


def _status_lines(client: RestClient, found: ConnectorStatus, trace: bool) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("connector", found["connector"]["state"], found["connector"]["worker_id"])
    ]
    rows += [(f"task {task['id']}", task["state"], task["worker_id"]) for task in found["tasks"]]
    lines = _columns(rows)
    text = sentence(found)
    if text:
        lines.append(text)
    if trace:
        lines += [
            part["trace"] for part in (found["connector"], *found["tasks"]) if part.get("trace") is not None
        ]
    progress = _progress(client, found["name"])
    if progress is not None:
        lag = f", behind by {progress.lag}" if progress.lag else ""
        lines.append(f"{progress.records} records, {progress.rate}/s{lag}")
    return lines


@connectors.command()
@click.argument("name")
@click.pass_context
def describe(ctx: click.Context, name: str) -> None:
    """Show a connector: its type, configuration and tasks."""
    from ottla.connect.config.secrets import masked

    found = _client(ctx).call("GET", one(name))
    shown = masked(found["config"])
    rows: list[tuple[str, ...]] = sorted(shown.items())
    _show(
        ctx,
        {**found, "config": shown},
        [f"{name} ({found['type']}, {len(found['tasks'])} tasks)", *_columns(rows)],
    )


def _action(word: str, method: str, path: str, done: str) -> None:
    @connectors.command(word, help=f"{word.capitalize()} a connector.")
    @click.argument("name")
    @click.pass_context
    def act(ctx: click.Context, name: str) -> None:
        answer = _client(ctx).call(method, one(name, path))
        _show(ctx, answer, [f"connector {name} {done}"])


_action("pause", "PUT", "/pause", "is being paused")
_action("resume", "PUT", "/resume", "is being resumed")
_action("stop", "PUT", "/stop", "is being stopped")
_action("delete", "DELETE", "", "deleted; its offsets stay")


@connectors.command()
@click.argument("name")
@click.option("--failed", is_flag=True, help="Only what has failed.")
@click.pass_context
def restart(ctx: click.Context, name: str, failed: bool) -> None:
    """Restart a connector with its tasks."""
    query = f"?includeTasks=true&onlyFailed={str(failed).lower()}"
    answer = _client(ctx).call("POST", one(name, f"/restart{query}"))
    _show(ctx, answer, [f"connector {name} is being restarted"])


@connectors.command()
@click.option("--all", "everything", is_flag=True, help="Also converters, transforms and predicates.")
@click.pass_context
def plugins(ctx: click.Context, everything: bool) -> None:
    """List the plugins of a worker."""
    found = _client(ctx).call("GET", f"/connector-plugins?connectorsOnly={str(not everything).lower()}")
    _show(ctx, found, _columns([(row["type"], row["class"], row.get("version") or "") for row in found]))


@connectors.command()
@click.argument("name")
@click.pass_context
def topics(ctx: click.Context, name: str) -> None:
    """List the topics that a connector has used."""
    found = _client(ctx).call("GET", one(name, "/topics"))
    _show(ctx, found, found[name]["topics"])


@connectors.command()
@click.argument("logger", required=False)
@click.argument("level", required=False)
@click.pass_context
def loggers(ctx: click.Context, logger: str | None, level: str | None) -> None:
    """Show the levels of loggers, or set one."""
    client = _client(ctx)
    if logger is not None and level is not None:
        changed = client.call("PUT", f"/admin/loggers/{logger}", {"level": level})
        _show(ctx, changed, changed)
        return
    found = client.call("GET", "/admin/loggers")
    rows = [(name, row["level"]) for name, row in found.items() if logger is None or name == logger]
    _show(ctx, found, _columns(rows))


@connectors.group()
def offsets() -> None:
    """Show, set or reset the offsets of a connector; it must be stopped for a change."""


@offsets.command("show")
@click.argument("name")
@click.pass_context
def show_offsets(ctx: click.Context, name: str) -> None:
    """Show the offset of each partition."""
    found = _client(ctx).call("GET", one(name, "/offsets"))
    rows = [(json.dumps(row["partition"]), json.dumps(row["offset"])) for row in found["offsets"]]
    _show(ctx, found, _columns(rows) or [f"connector {name} has no offsets"])


@offsets.command("set")
@click.argument("name")
@click.argument("partition")
@click.argument("offset")
@click.pass_context
def set_offset(ctx: click.Context, name: str, partition: str, offset: str) -> None:
    """Set the offset of a partition; both are JSON, as `offsets show` prints them. null resets one."""
    try:
        body = {"offsets": [{"partition": json.loads(partition), "offset": json.loads(offset)}]}
    except ValueError as error:
        raise ConnectError(f"a partition and an offset are JSON: {error}") from None
    answer = _client(ctx).call("PATCH", one(name, "/offsets"), body)
    _show(ctx, answer, [answer["message"]])


@offsets.command("reset")
@click.argument("name")
@click.pass_context
def reset_offsets(ctx: click.Context, name: str) -> None:
    """Remove all offsets of a connector."""
    answer = _client(ctx).call("DELETE", one(name, "/offsets"))
    _show(ctx, answer, [answer["message"]])


@connectors.group()
def config() -> None:
    """Show or change the configuration of a connector."""


@config.command("show")
@click.argument("name")
@click.pass_context
def show_config(ctx: click.Context, name: str) -> None:
    """Show the configuration; secrets are hidden, but not with --json."""
    from ottla.connect.config.secrets import masked

    found = _client(ctx).call("GET", one(name, "/config"))
    _show(ctx, found, [f"{key}={value}" for key, value in sorted(masked(found).items())])


@config.command("set")
@click.argument("name")
@click.argument("keys", nargs=-1, required=True)
@click.pass_context
def set_config(ctx: click.Context, name: str, keys: tuple[str, ...]) -> None:
    """Set keys, each as KEY=VALUE."""
    for pair in keys:
        if "=" not in pair:
            raise ConnectError(f"{pair} is not KEY=VALUE")
    patch = dict(pair.split("=", 1) for pair in keys)
    _show(ctx, _client(ctx).call("PATCH", one(name, "/config"), patch), [f"connector {name} changed"])


@config.command("unset")
@click.argument("name")
@click.argument("keys", nargs=-1, required=True)
@click.pass_context
def unset_config(ctx: click.Context, name: str, keys: tuple[str, ...]) -> None:
    """Remove keys."""
    answer = _client(ctx).call("PATCH", one(name, "/config"), dict.fromkeys(keys))
    _show(ctx, answer, [f"connector {name} changed"])
