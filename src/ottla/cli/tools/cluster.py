"""`ottla cluster`: what kafka-cluster does."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.columns import row
from ottla.cli.tools.failures import UsageProblem, raise_for
from ottla.wire.messages import DescribeClusterRequest, UnregisterBrokerRequest

_BROKERS, _CONTROLLERS = 1, 2


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
def cluster(session: Session, flags: Flags) -> None:
    """Show the cluster's id and endpoints, or unregister a broker."""
    if flags.action == "cluster-id":
        cluster_id = _describe(session, flags).cluster_id
        session.tell({"clusterId": cluster_id}, [f"Cluster ID: {cluster_id}"])
    elif flags.action == "unregister":
        require(flags, "id")
        answer = session.cluster.ask(UnregisterBrokerRequest(broker_id=flags.id))
        raise_for(answer.error_code, answer.error_message)
        session.tell({"unregistered": flags.id}, [f"Broker {flags.id} is no longer registered."])
    else:
        _list_endpoints(session, flags)


def _describe(session: Session, flags: Flags) -> Any:
    request = DescribeClusterRequest(
        endpoint_type=_CONTROLLERS if session.to_controllers else _BROKERS,
        include_fenced_brokers=flags.include_fenced_brokers,
    )
    answer = session.cluster.ask(request)
    raise_for(answer.error_code, answer.error_message)
    return answer


def _list_endpoints(session: Session, flags: Flags) -> None:
    if session.to_controllers and flags.include_fenced_brokers:
        raise UsageProblem("--include-fenced-brokers can't be used with --bootstrap-controller")
    nodes = sorted(_describe(session, flags).brokers, key=lambda node: int(node.broker_id))
    kind = "controller" if session.to_controllers else "broker"
    titles = ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    hosts = max((len(node.host) for node in nodes), default=100)
    racks = max((len(node.rack) for node in nodes if node.rack is not None), default=10)
    widths = [10, hosts, 10, racks, 10, 15]
    rows = [
        [
            *(node.broker_id, node.host, node.port, "null" if node.rack is None else node.rack),
            *("fenced" if node.is_fenced else "unfenced", kind),
        ]
        for node in nodes
    ]
    kept = [index for index in range(6) if titles[index] != "STATE" or kind == "broker"]
    lines = [
        row([cells[index] for index in kept], [widths[index] for index in kept]) for cells in [titles, *rows]
    ]
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
    session.tell(documents, lines)
