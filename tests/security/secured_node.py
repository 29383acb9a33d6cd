"""A broker that lets nobody in without credentials, and clients that send it whatever a test wants."""

from __future__ import annotations

import itertools
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.credentials.scram_keys import SCRAM_HASHES
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENERS = ("PASSWORDS", "CERTIFICATES", "INTERNAL", "CONTROLLER")
ADMIN, ALICE = ("admin", "admin-secret-2f81"), ("alice", "alice-secret-93bc")


class SecuredNode:
    """One node with a listener for each way in.

    PASSWORDS is SASL_SSL with PLAIN and SCRAM; CERTIFICATES, INTERNAL (between brokers) and CONTROLLER are mutual TLS.
    `User:CN=node1`, `User:CN=admin` and `User:admin` are super users.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self._clients = itertools.count(1)
        self.authority = CertificateAuthority.create()
        self.trust = self.authority.write_truststore(folder / "ca.pem")
        self.keystore = folder / "node1.pem"
        write_pem(self.authority.issue("node1", uris=("ottla:node:1",)), self.keystore)
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.config = folder / "server.properties"
        self.config.write_text(self.properties(settings or {}))
        self.broker = BrokerProcess(folder / "data", config=self.config, arguments=["--log-level", "trace"])

    def properties(self, settings: Mapping[str, object]) -> str:
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        users = " ".join(f'user_{name}="{password}"' for name, password in (ADMIN, ALICE))
        required = "\n".join(
            f"listener.name.{name.lower()}.ssl.client.auth=required" for name in LISTENERS[1:]
        )
        return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{self.ports["CONTROLLER"]}
controller.listener.names=CONTROLLER
listeners={addresses}
listener.security.protocol.map=PASSWORDS:SASL_SSL,CERTIFICATES:SSL,INTERNAL:SSL,CONTROLLER:SSL
inter.broker.listener.name=INTERNAL
sasl.enabled.mechanisms=PLAIN,{",".join(SCRAM_HASHES)}
listener.name.passwords.plain.sasl.jaas.config={PLAIN} required {users};
{required}
ssl.keystore.type=PEM
ssl.keystore.location={self.keystore}
ssl.truststore.type=PEM
ssl.truststore.location={self.trust}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:CN=node1;User:CN=admin;User:admin
log.dirs={self.folder / "data"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
connection.failed.authentication.delay.ms=10
""" + "".join(f"{key}={value}\n" for key, value in settings.items())

    def context(self, name: str | None = None, **options: Any) -> ssl.SSLContext:
        """What a client needs: the authority, and a certificate if it has a name."""
        context = ssl.create_default_context(cafile=str(self.trust))
        if name is not None:
            file = self.folder / f"client-{name}.pem"
            write_pem(self.authority.issue(name, **options), file)
            context.load_cert_chain(file)
        return context

    def connect(self, listener: str, tls: ssl.SSLContext) -> RawClient:
        """Each client has an address of its own, where the system has them: failures of one must not delay others."""
        number = next(self._clients)
        source = f"127.1.{number // 250}.{number % 250 + 1}" if sys.platform == "linux" else None
        return RawClient("127.0.0.1", self.ports[listener], tls=tls, source=source)

    def certified(self, listener: str, name: str, *, node_id: int | None = None) -> RawClient:
        """A client with a certificate, which may name a node."""
        uris = () if node_id is None else (f"ottla:node:{node_id}",)
        return self.connect(listener, self.context(name, uris=uris))

    def log_in(self, user: tuple[str, str]) -> RawClient:
        """A client with a user and a password."""
        client = self.connect("PASSWORDS", self.context())
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = "\0".join(("", *user)).encode()
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, answer.error_message
        return client

    def client(self, user: tuple[str, str] = ADMIN) -> dict[str, Any]:
        """For clients on librdkafka."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports['PASSWORDS']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user[0],
            "sasl.password": user[1],
        }
