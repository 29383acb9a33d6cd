"""`ottla cluster`: what kafka-cluster does."""

from __future__ import annotations

import click

from ottla.admin.quorum import describe_cluster, unregister_broker
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.columns import row
from ottla.cli.tools.failures import UsageProblem
from ottla.wire.messages import DescribeClusterResponse


class ClusterFlags(Flags):
    """The flags of `ottla cluster`."""

    action: str
    id: int | None
    include_fenced_brokers: bool


@tool(
    "cluster",
    click.argument("action", type=click.Choice(["cluster-id", "unregister", "list-endpoints"])),
    click.option("--id", "id", type=int, metavar="ID", help="unregister: the broker."),
    click.option(
        "--include-fenced-brokers", is_flag=True, help="list-endpoints: also brokers that are fenced."
    ),
    aliases={
        "-b": "--bootstrap-server",
        "-C": "--bootstrap-controller",
        "-c": "--command-config",
        "-i": "--id",
        "--config": "--command-config",
    },
    controllers=True,
)
def cluster(session: Session, flags: ClusterFlags) -> None:
    """Show the cluster's id and endpoints, or unregister a broker."""
    if flags.action == "cluster-id":
        cluster_id = _describe(session, flags).cluster_id
        session.result({"clusterId": cluster_id}, [f"Cluster ID: {cluster_id}"])
    elif flags.action == "unregister":
        require(flags, "id")
        assert flags.id is not None
        unregister_broker(session.cluster, flags.id)
        session.result({"unregistered": flags.id}, [f"Broker {flags.id} is no longer registered."])
    else:
        _list_endpoints(session, flags)


def _describe(session: Session, flags: ClusterFlags) -> DescribeClusterResponse:
    return describe_cluster(
        session.cluster, controllers=session.to_controllers, fenced=flags.include_fenced_brokers
    )


def _list_endpoints(session: Session, flags: ClusterFlags) -> None:
    if session.to_controllers and flags.include_fenced_brokers:
        raise UsageProblem("--include-fenced-brokers can't be used with --bootstrap-controller")
    nodes = sorted(_describe(session, flags).brokers, key=lambda node: int(node.broker_id))
    kind = "controller" if session.to_controllers else "broker"
    titles = ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    hosts = max((len(node.host) for node in nodes), default=100)
    racks = max((len(node.rack) for node in nodes if node.rack is not None), default=10)
    widths = [10, hosts, 10, racks, 10, 15]
    rows: list[list[object]] = [
        [
            *(node.broker_id, node.host, node.port, "null" if node.rack is None else node.rack),
            *("fenced" if node.is_fenced else "unfenced", kind),
        ]
        for node in nodes
    ]
    kept = [index for index in range(6) if titles[index] != "STATE" or kind == "broker"]
    table: list[list[object]] = [[*titles], *rows]
    lines = [row([cells[index] for index in kept], [widths[index] for index in kept]) for cells in table]
    documents = [
        {
            "id": node.broker_id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "fenced": node.is_fenced,
            "endpointType": kind,
        }
        for node in nodes
    ]
    session.result(documents, lines)
