"""Apache Kafka as a second system for our tools: two nodes, an authorizer, SASL for those who want tokens."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.testing.apache import ApacheKafka, free_port

ADMIN = "admin"
PASSWORD = "tool-secret"

_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class ApachePair:
    """Node 1 is broker and controller, node 2 a broker; both have two log directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "broker.pem"
        self.sasl_port, self.tls_port = free_port(), free_port()
        common = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
            "delegation.token.secret.key": "a-key-of-the-tests",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{_SCRAM_LOGIN} required;",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{_SCRAM_LOGIN} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificate,
            "listener.name.sasl.plain.sasl.jaas.config": (
                f'{_LOGIN} required username="{ADMIN}" password="{PASSWORD}" user_{ADMIN}="{PASSWORD}";'
            ),
            "auto.leader.rebalance.enable": "false",
            "group.streams.initial.rebalance.delay.ms": 0,
            "metadata.max.idle.interval.ms": 0,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "offsets.topic.num.partitions": 4,
            "share.coordinator.state.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "replica.fetch.wait.max.ms": 50,
        }
        self.first = ApacheKafka(directory / "one", {**common, "log.dirs": self._dirs("one")})
        listeners = str(self.first.settings["listeners"])
        self.first.settings["listeners"] = (
            f"{listeners},SASL://127.0.0.1:{self.sasl_port},TLS://127.0.0.1:{self.tls_port}"
        )
        self.second = ApacheKafka(directory / "two", {**common, "log.dirs": self._dirs("two")})
        self.second.settings |= {
            "process.roles": "broker",
            "node.id": 2,
            "controller.quorum.voters": self.first.settings["controller.quorum.voters"],
            "listeners": f"PLAINTEXT://127.0.0.1:{self.second.port}",
        }

    def _dirs(self, name: str) -> str:
        return f"{self.directory}/{name}/a,{self.directory}/{name}/b"

    @property
    def bootstrap(self) -> str:
        return self.first.bootstrap

    @property
    def secure(self) -> str:
        """The address that wants to know who one is."""
        return f"127.0.0.1:{self.sasl_port}"

    def admin_config(self) -> Path:
        """A client's settings that let the administrator in."""
        file = self.directory / "admin.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={_LOGIN} required username="{ADMIN}" password="{PASSWORD}";\n'
        )
        return file

    @property
    def encrypted(self) -> str:
        """The address that speaks TLS, with a certificate that nobody has signed but the broker itself."""
        return f"127.0.0.1:{self.tls_port}"

    def _make_certificate(self) -> None:
        """A key and its certificate, in one file as Kafka reads it."""
        key, certificate = self.directory / "key.pem", self.directory / "ca.pem"
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                ),
                *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
        self.certificate.write_text(key.read_text() + certificate.read_text())

    @property
    def authority(self) -> Path:
        """What a client needs to trust the address that speaks TLS."""
        return self.directory / "ca.pem"

    def start(self) -> ApachePair:
        self._make_certificate()
        for node in (self.first, self.second):
            node.format()
            node.start()
        return self

    def kill(self) -> None:
        for node in (self.second, self.first):
            node.kill()
