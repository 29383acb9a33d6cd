"""`ottla spark`: checks whether Spark can run here, and starts a small cluster from the Python package."""

from __future__ import annotations

import sys

import click

from ottla.pipeline.failures import PipelineError


@click.group()
def spark() -> None:
    """Apache Spark for the pipeline: checks, and a small cluster."""


@spark.command()
@click.option("--start/--no-start", "start", default=False, help="Also start a session and run a job in it.")
def doctor(start: bool) -> None:
    """Show the Python, Java, Spark and jars that were found; fetch the jars if they are missing."""
    from ottla.pipeline.doctor import examine

    sound = True
    for finding in examine(start=start):
        mark = click.style("ok", fg="green") if finding.good else click.style("!!", fg="red")
        click.echo(f"{mark}  {finding.what:<12} {finding.text}")
        sound = sound and finding.good
    if not sound:
        sys.exit(1)


@spark.command()
def archive() -> None:
    """Make an archive of Spark's classes: sessions on this machine then start with a third less CPU."""
    from ottla.pipeline.class_archive import make_archive

    try:
        made = make_archive()
    except PipelineError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{made.stat().st_size >> 20} MiB of classes in {made}")


@spark.command("start-cluster")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1), help="Worker processes.")
@click.option("--cores", default=1, show_default=True, type=click.IntRange(1), help="Cores of each worker.")
@click.option("--memory", default="1g", show_default=True, help="Memory of each worker, as Spark writes it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=7077, show_default=True, type=int, help="The master's port; 0 for any.")
@click.option(
    "--web-port", default=8080, show_default=True, type=int, help="The port of the master's page; 0 for any."
)
def start_cluster(workers: int, cores: int, memory: str, host: str, port: int, web_port: int) -> None:
    """Start a standalone master and workers here, and run until Ctrl-C."""
    from ottla.pipeline.standalone import StandaloneCluster

    try:
        cluster = StandaloneCluster(
            workers=workers, cores=cores, memory=memory, host=host, port=port, web_port=web_port
        )
        with cluster:
            click.echo(f"Spark master {cluster.master} with {workers} workers, page {cluster.web_address}")
            click.echo("Ctrl-C stops it")
            cluster.wait()
    except KeyboardInterrupt:
        click.echo("stopped")
    except PipelineError as error:
        raise click.ClickException(str(error)) from None
