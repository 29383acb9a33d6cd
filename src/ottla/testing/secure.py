"""A secured cluster for tests: what `ottla secure init` makes, with users and their settings for each client."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.properties_file import read_properties
from ottla.cli.secure.folder import SecureFolder
from ottla.cli.secure.init import init_cluster
from ottla.cli.secure.users import TenantLimits, add_tenant, add_user
from ottla.cli.tools.security import jaas_options
from ottla.testing.ports import free_block
from ottla.testing.process import BrokerProcess
from ottla.testing.running import QUICK_SETTINGS

_PORTS_OF_A_NODE = 3


class SecureCluster:
    """`n` nodes with SCRAM over TLS for clients, mutual TLS between nodes, ACLs, and the strict profile.

    `admin` may do everything. `add_user` and `add_tenant` add others; `settings_of` gives a user's settings for
    KafkaProducer and other clients with kafka-python's names, `librdkafka_settings_of` those for confluent-kafka,
    and `properties_of` a file for tools and Java's clients.

    >>> from pathlib import Path
    >>> secured = SecureCluster(Path(tmp) / "secured", 1)
    >>> sorted(secured.settings_of("admin"))[:3]
    ['bootstrap_servers', 'sasl_mechanism', 'sasl_plain_password']
    """

    def __init__(self, data: Path, n: int = 1, *, settings: Mapping[str, object] | None = None) -> None:
        self.folder = SecureFolder(data / "secure")
        lines: list[str] = []
        hosts = [f"localhost:{free_block(_PORTS_OF_A_NODE)}" for _ in range(n)]
        init_cluster(self.folder.path, nodes=n, hosts=hosts, target=None, days=30, echo=lines.append)
        self._format = [shlex.split(line)[1:] for line in lines if line.startswith("  ottla storage format")]
        wanted = {**QUICK_SETTINGS, **(settings or {})}
        self.nodes: dict[int, BrokerProcess] = {
            node_id: BrokerProcess(
                data / f"node-{node_id}",
                config=self.folder.properties(f"node-{node_id}"),
                settings=wanted,
            )
            for node_id in self.folder.node_ids()
        }

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients, separated by commas.

        >>> secure_cluster.bootstrap
        'localhost:...'
        """
        return self.folder.admin_properties()["bootstrap.servers"]

    @property
    def ca_file(self) -> str:
        """The certificate that clients trust, as a PEM file.

        >>> secure_cluster.ca_file
        '.../ca.pem'
        """
        return str(self.folder.trust)

    def start(self) -> SecureCluster:
        """Format the directories, start all nodes, and wait until they are ready.

        ::

            cluster = SecureCluster(path).start()
        """
        for words in self._format:
            subprocess.run([sys.executable, "-m", "ottla", *words], check=True, capture_output=True)
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_ready()
        return self

    def add_user(self, name: str) -> None:
        """Add a user, who may do nothing yet.

        >>> secure_cluster.add_user("alice")
        """
        add_user(self.folder, name, None, lambda _: None)

    def add_tenant(self, name: str, prefix: str) -> None:
        """Add a user who owns all topics, groups and transactional ids that begin with a prefix.

        >>> secure_cluster.add_tenant("team1", "team1.")
        """
        add_tenant(self.folder, name, prefix, TenantLimits(), None, lambda _: None)

    def properties_of(self, user: str = "admin") -> Path:
        """Return a user's properties file, for `--command-config` and Java's clients.

        >>> secure_cluster.properties_of("admin").name
        'admin.properties'
        """
        return self.folder.properties(user)

    def settings_of(self, user: str = "admin") -> dict[str, str]:
        """Return a user's settings for `ottla.KafkaProducer` and other clients with kafka-python's names.

        >>> from ottla import KafkaAdminClient
        >>> with KafkaAdminClient(**secure_cluster.settings_of("admin")) as admin:
        ...     topics = admin.list_topics()
        """
        properties = read_properties(str(self.properties_of(user)))
        login = jaas_options(properties["sasl.jaas.config"])
        return {
            "bootstrap_servers": properties["bootstrap.servers"],
            "security_protocol": properties["security.protocol"],
            "ssl_cafile": self.ca_file,
            "sasl_mechanism": properties["sasl.mechanism"],
            "sasl_plain_username": login["username"],
            "sasl_plain_password": login["password"],
        }

    def librdkafka_settings_of(self, user: str = "admin") -> dict[str, str]:
        """Return a user's settings for confluent-kafka.

        >>> secure_cluster.librdkafka_settings_of("admin")["sasl.mechanism"]
        'SCRAM-SHA-512'
        """
        found = self.settings_of(user)
        return {
            "bootstrap.servers": found["bootstrap_servers"],
            "security.protocol": found["security_protocol"],
            "ssl.ca.location": found["ssl_cafile"],
            "sasl.mechanism": found["sasl_mechanism"],
            "sasl.username": found["sasl_plain_username"],
            "sasl.password": found["sasl_plain_password"],
        }

    def logs(self) -> str:
        """Return the end of every node's log, for the message of a failed test.

        >>> "Traceback" in secure_cluster.logs()
        False
        """
        return "\n".join(f"-- node {node_id}\n{node.log[-5000:]}" for node_id, node in self.nodes.items())

    def stop_all(self) -> None:
        """Stop all nodes cleanly.

        ::

            cluster.stop_all()
        """
        for node in self.nodes.values():
            if node.running:
                node.stop()

    def kill_all(self) -> None:
        """Kill all nodes.

        ::

            cluster.kill_all()
        """
        for node in self.nodes.values():
            node.kill()
