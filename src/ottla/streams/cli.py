"""`ottla streams`: run, describe, stop and reset applications."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ottla.streams.errors import StreamsError
from ottla.streams.graph.draw import mermaid, svg
from ottla.streams.graph.topology import Topology
from ottla.streams.http import HttpEndpoint
from ottla.streams.loading import load_topology
from ottla.streams.settings import MAX_OFFSETS_PER_BATCH, StreamsSettings, state_home
from ottla.streams.status import read_status, request_stop

_application_id = click.option(
    "--application-id", required=True, help="Its consumer group and transactional id."
)
_state_dir = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where applications keep their checkpoints.  [default: $OTTLA_STREAMS_DIR, else under ~/.local/state]",
)
_bootstrap = click.option(
    "--bootstrap-server",
    "bootstrap_servers",
    envvar="OTTLA_BOOTSTRAP",
    help="The cluster.  [default: bootstrap.servers of --command-config, else 127.0.0.1:9092]",
)
_command_config = click.option(
    "--command-config", metavar="FILE", help="Properties file with client settings: TLS and the login."
)


@click.group()
def streams() -> None:
    """Applications on Spark, with the DSL of Kafka Streams."""


@streams.command()
@click.argument("file", type=click.Path(path_type=Path))
@_application_id
@_bootstrap
@_command_config
@_state_dir
@click.option(
    "--master", help="Spark's master: local[*], spark://host:port, ...  [default: $SPARK_MASTER, else local]"
)
@click.option("--at-least-once", is_flag=True, help="Write without transactions.")
@click.option("--create-topics", is_flag=True, help="Create topics that are missing, with one partition.")
@click.option("--once", is_flag=True, help="Stop when everything that is there now has been processed.")
@click.option("--trigger-ms", type=click.IntRange(0), default=0, help="The least time between micro-batches.")
@click.option(
    "--batch-records", type=click.IntRange(1), help="The most records of one micro-batch.  [default: 1000000]"
)
@click.option("--real-time", is_flag=True, help="Milliseconds of latency, for expressions without state.")
@click.option("--low-latency", is_flag=True, help="Faster small batches, at the cost of long runs' speed.")
@click.option(
    "--reader",
    type=click.Choice(["ottla", "spark"]),
    default="ottla",
    show_default=True,
    help="What reads topics: Ottla's reader, within the first stage, or Spark's Kafka source.",
)
@click.option("--http-port", type=click.IntRange(0, 65535), help="Serve stores, status and metrics here.")
@click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
def run(
    file: Path,
    application_id: str,
    bootstrap_servers: str | None,
    command_config: str | None,
    state_dir: Path | None,
    master: str | None,
    at_least_once: bool,
    create_topics: bool,
    once: bool,
    trigger_ms: int,
    batch_records: int | None,
    real_time: bool,
    low_latency: bool,
    reader: str,
    http_port: int | None,
    conf: tuple[str, ...],
) -> None:
    """Run the application that a Python file describes."""
    from ottla.pipeline.failures import PipelineError
    from ottla.streams.runner import StreamsApp

    servers, client = _connection(bootstrap_servers, command_config)
    settings = StreamsSettings(
        bootstrap_servers=servers,
        client=client,
        master=master,
        state_dir=state_dir,
        exactly_once=not at_least_once,
        create_topics=create_topics,
        trigger_ms=trigger_ms,
        max_offsets_per_batch=batch_records or MAX_OFFSETS_PER_BATCH,
        real_time=real_time,
        low_latency=low_latency,
        fused_reader=reader == "ottla",
        spark=dict(_pair(one) for one in conf),
    )
    try:
        app = StreamsApp(load_topology(file), application_id, settings)
        # A port that is taken is reported before Spark starts.
        endpoint = None if http_port is None else HttpEndpoint(app, http_port)
        click.echo(f"{application_id}: starting on Spark (this takes some seconds)")
        try:
            app.start(available_now=once)
            click.echo(f"{application_id}: running until Ctrl-C or `ottla streams stop`")
            if endpoint is not None:
                endpoint.start()
                click.echo(f"{application_id}: stores, status and metrics at {endpoint.address}")
            app.wait()
        except KeyboardInterrupt:
            app.stop()
        finally:
            if endpoint is not None:
                endpoint.close()
    except (StreamsError, PipelineError) as problem:
        raise click.ClickException(str(problem)) from None
    click.echo(f"{application_id}: stopped")


def _connection(servers: str | None, file: str | None) -> tuple[str, dict[str, str]]:
    """The cluster's addresses, and the client settings of a properties file."""
    client: dict[str, str] = {}
    if file is not None:
        from ottla.cli.properties_file import read_client_properties
        from ottla.errors import ApiException

        try:
            client = read_client_properties(file)
        except ApiException as error:
            raise click.ClickException(error.message) from None
    own = client.pop("bootstrap.servers", None)
    return servers or own or "127.0.0.1:9092", client


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"KEY=VALUE is expected, not {text}")
    return key, value


@streams.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(["text", "mermaid", "svg", "stages"]), default="text")
def describe(file: Path, kind: str) -> None:
    """Show a file's topology: Kafka Streams' text, Mermaid, SVG, or the stages it has on Spark."""
    try:
        topology = load_topology(file)
        if kind == "stages":
            click.echo(_stages(topology), nl=False)
            return
        shown = {"text": Topology.describe, "mermaid": mermaid, "svg": svg}[kind](topology)
    except StreamsError as problem:
        raise click.ClickException(str(problem)) from None
    click.echo(shown, nl=not shown.endswith("\n"))


def _stages(topology: Topology) -> str:
    from ottla.streams.planner.foreign_key_replicas import resolved_tables, with_replicas
    from ottla.streams.planner.stages import make_plan

    plan = make_plan(with_replicas(topology, resolved_tables(topology)))
    lines = []
    for stage in plan.stages:
        lines.append(f"Stage {stage.number}: {'no state' if not stage.stores else ', '.join(stage.stores)}")
        lines += [f"    {node.name}" for node in stage.nodes]
    return "\n".join(lines) + "\n"


@streams.command()
@click.option("--application-id", help="One application; without it all are listed.")
@_state_dir
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(application_id: str | None, state_dir: Path | None, as_json: bool) -> None:
    """Show the status of applications: rows per second, batch times, state, lag."""
    home = state_dir or state_home()
    names = (
        [application_id]
        if application_id
        else sorted(path.parent.name for path in home.glob("*/status.json"))
    )
    try:
        found = [read_status(home / name) for name in names]
    except StreamsError as problem:
        raise click.ClickException(str(problem)) from None
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    click.echo(
        f"{'APPLICATION':<28} {'STATE':<8} {'BATCH':>7} {'ROWS/S':>10} {'BATCH MS':>9} {'STATE ROWS':>11} {'LAG':>9}"
    )
    for one in found:
        state = "running" if one.get("running") else "stopped"
        rate = one.get("rows_per_second")
        rows = "-" if rate is None else f"{rate:,.0f}"
        cells = (one.get("batch"), one.get("batch_ms"), one.get("state_rows"), one.get("lag"))
        batch, batch_ms, state_rows, lag = map(_cell, cells)
        click.echo(
            f"{one['application_id']:<28} {state:<8} {batch:>7} {rows:>10} {batch_ms:>9} {state_rows:>11} {lag:>9}"
        )


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value)


@streams.command()
@_application_id
@_state_dir
def stop(application_id: str, state_dir: Path | None) -> None:
    """Ask a running application to stop."""
    try:
        request_stop((state_dir or state_home()) / application_id)
    except StreamsError as problem:
        raise click.ClickException(str(problem)) from None
    click.echo(f"{application_id}: asked to stop")


@streams.command()
@_application_id
@_bootstrap
@_command_config
@_state_dir
def reset(
    application_id: str, bootstrap_servers: str | None, command_config: str | None, state_dir: Path | None
) -> None:
    """Forget an application's state, checkpoint and offsets: the next run begins at the earliest records."""
    from ottla.streams.reset import reset as forget

    servers, client = _connection(bootstrap_servers, command_config)
    settings = StreamsSettings(bootstrap_servers=servers, client=client, state_dir=state_dir)
    try:
        done = forget(application_id, settings)
    except StreamsError as problem:
        raise click.ClickException(str(problem)) from None
    for line in done or [f"{application_id} had no state and no offsets"]:
        click.echo(line)
