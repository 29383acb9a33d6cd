"""The nodes of a cluster to be: their hosts, ports and names, and the properties of nodes and clients as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.cli.secure.folder import ADMIN, SecureProblem
from ottla.config.listeners import format_address, parse_address

FIRST_PORT: Final = 9092
_PORTS_OF_A_NODE: Final = 3
_NEXT_ON_HOST: Final = 10
"""The distance between the ports of two nodes on one host."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: broker and controller, with three ports in a row for clients, brokers and controllers."""

    id: int
    host: str
    port: int

    @property
    def name(self) -> str:
        return f"node-{self.id}"

    @property
    def controller_address(self) -> str:
        return format_address(self.host, self.port + 2)

    @property
    def client_address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """The names that clients may use for the node."""
        return _LOOPBACK if self.host in _LOOPBACK else (self.host,)


def plan_nodes(count: int, hosts: Sequence[str]) -> list[NodePlan]:
    """Nodes 1 to `count` on the given `HOST` or `HOST:PORT`; one host stands for all nodes."""
    if count < 1:
        raise SecureProblem(f"--nodes {count}: expected at least 1")
    words = list(hosts) or ["localhost"]
    if len(words) == 1:
        words *= count
    if len(words) != count:
        raise SecureProblem(
            f"--hosts names {len(words)} hosts for {count} nodes: expected one, or one for each"
        )
    nodes: list[NodePlan] = []
    taken: dict[str, int] = {}
    for number, word in enumerate(words, 1):
        host, port = _host_and_port(word)
        if port is None or (host in taken and words.count(word) > 1):
            port = taken[host] + _NEXT_ON_HOST if host in taken else port or FIRST_PORT
        taken[host] = port
        nodes.append(NodePlan(number, host, port))
    used = [(node.host, node.port + offset) for node in nodes for offset in range(_PORTS_OF_A_NODE)]
    if len(set(used)) != len(used) or any(port > 65535 for _, port in used):
        raise SecureProblem("--hosts: each node takes three ports from its own on; here they overlap or end")
    return nodes


def _host_and_port(word: str) -> tuple[str, int | None]:
    address = parse_address(word)
    if address is not None and address[0]:
        return address
    host = word.strip("[]")
    if parse_address(f"[{host}]:1" if ":" in host else f"{host}:1") is None or not host:
        raise SecureProblem(f"--hosts '{word}': expected HOST or HOST:PORT")
    return host, None


def node_properties(node: NodePlan, nodes: Sequence[NodePlan], folder: Path) -> str:
    """The node's server.properties: SASL over TLS for clients, mutual TLS between nodes, ACLs, strict."""
    bind = node.host if node.host in _LOOPBACK else ""
    bound = [format_address(bind, node.port + offset) for offset in range(_PORTS_OF_A_NODE)]
    known = [format_address(node.host, node.port + offset) for offset in range(_PORTS_OF_A_NODE)]
    bootstrap = ",".join(each.controller_address for each in nodes)
    supers = ";".join(
        f"User:{name}" for name in (ADMIN, f"CN={ADMIN}", *(f"CN={each.name}" for each in nodes))
    )
    copies = min(3, len(nodes))
    return f"""# Written by `ottla secure init`. Keep it readable for its owner only.
ottla.security.profile=strict
process.roles=broker,controller
node.id={node.id}
log.dirs={folder / f"data-{node.id}"}

# Clients log in by password over TLS; brokers and controllers know each other by certificate.
listeners=CLIENTS://{bound[0]},BROKERS://{bound[1]},CONTROLLERS://{bound[2]}
advertised.listeners=CLIENTS://{known[0]},BROKERS://{known[1]},CONTROLLERS://{known[2]}
listener.security.protocol.map=CLIENTS:SASL_SSL,BROKERS:SSL,CONTROLLERS:SSL
inter.broker.listener.name=BROKERS
controller.listener.names=CONTROLLERS
controller.quorum.bootstrap.servers={bootstrap}

ssl.keystore.type=PEM
ssl.keystore.location={folder / f"{node.name}.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={folder / "ca.pem"}
listener.name.brokers.ssl.client.auth=required
listener.name.controllers.ssl.client.auth=required
listener.name.clients.sasl.enabled.mechanisms={MECHANISM}

authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users={supers}
ottla.node.identity=required

default.replication.factor={copies}
min.insync.replicas={max(1, copies - 1)}
offsets.topic.replication.factor={copies}
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={max(1, copies - 1)}
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={max(1, copies - 1)}
"""


def scram_properties(bootstrap: str, trust: str, name: str, password: str) -> str:
    """Client properties of a user, for every tool (`--command-config`) and for Java's clients."""
    return f"""# The login of {name}. Keep it readable for its owner only.
bootstrap.servers={bootstrap}
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={trust}
sasl.mechanism={MECHANISM}
sasl.jaas.config={_SCRAM_MODULE} required username="{name}" password="{password}";
"""


def controllers_properties(folder: Path) -> str:
    """Client properties for the controllers' listener, where the administrator is known by certificate."""
    return f"""# For --bootstrap-controller: the certificate of {ADMIN}.
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={folder / "ca.pem"}
ssl.keystore.type=PEM
ssl.keystore.location={folder / f"{ADMIN}.pem"}
"""
