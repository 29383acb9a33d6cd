"""One configuration with every secured listener, for Ottla and for Apache Kafka, and the settings of its clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.testing.apache import ApacheKafka
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from token_issuer import AUDIENCE, ISSUER, TokenIssuer

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
NAMES = ("INNER", "SSL", "MTLS", "SASL_SSL", "CONTROLLER")
SECRETS = {"alice": "alice-secret-7d1", "bob": "bob-secret-02c"}
WAYS = ("SSL", "mTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_ADD_SCRAM = [
    word
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for user, secret in SECRETS.items()
    for word in ("--add-scram", f"{mechanism}=[name={user},password={secret}]")
]


@dataclass(frozen=True, slots=True)
class Way:
    """How one client comes in: by which listener, with what."""

    name: str
    bootstrap: str
    trust: Path
    certificate: Path | None = None
    user: str = ""
    password: str = ""
    token: str = ""
    delegation_token: bool = False
    """`user` is the id of a delegation token, `password` its HMAC."""

    @property
    def mechanism(self) -> str:
        return "" if self.name in ("SSL", "mTLS") else self.name

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"

    def properties(self, folder: Path) -> Path:
        """For Java's client."""
        lines = [
            f"security.protocol={self.protocol}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.trust}",
        ]
        if self.certificate is not None:
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.certificate}"]
        if self.mechanism:
            module = PLAIN if self.mechanism == "PLAIN" else SCRAM
            lines += [f"sasl.mechanism={self.mechanism}"]
            lines += [
                f'sasl.jaas.config={module} required username="{self.user}" password="{self.password}";'
            ]
        file = folder / f"{self.name}-{self.user}-{hash(self) & 0xFFFF}.properties"
        file.write_text("\n".join(lines) + "\n")
        return file

    def librdkafka(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": str(self.trust),
        }
        if self.certificate is not None:
            settings |= {
                "ssl.certificate.location": str(self.certificate),
                "ssl.key.location": str(self.certificate),
            }
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
        if self.user:
            settings |= {"sasl.username": self.user, "sasl.password": self.password}
        return settings


class MatrixNode:
    """A node that runs as Ottla or as Apache Kafka. alice may do everything with `t-...`, bob nothing."""

    def __init__(self, folder: Path, *, apache: bool) -> None:
        self.folder = folder
        self.apache = apache
        self.issuer = TokenIssuer()
        self.authority = CertificateAuthority.create()
        self.trust = self.authority.write_truststore(folder / "ca.pem")
        write_pem(self.authority.issue("broker"), folder / "broker.pem")
        write_pem(self.authority.issue("alice", hosts=()), folder / "alice.pem")
        expired = self.authority.issue("alice", hosts=(), lifetime=timedelta(days=-2))
        write_pem(expired, folder / "expired.pem")
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._node = self._apache() if apache else self._ottla()
        self.admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports['INNER']}"})
        self._prepare()

    def _keys(self) -> Mapping[str, object]:
        users = " ".join(f'user_{name}="{secret}"' for name, secret in SECRETS.items())
        keys: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,INNER:PLAINTEXT,SSL:SSL,MTLS:SSL,SASL_SSL:SASL_SSL"
            ),
            "inter.broker.listener.name": "INNER",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.folder / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trust,
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "sasl.enabled.mechanisms": ",".join(WAYS[2:-1] if self.apache else WAYS[2:]),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN} required {users};",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "token-secret-51e",
        }
        if not self.apache:
            keys |= {
                "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
                "sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer.url}/jwks",
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
            }
        return keys

    def _ottla(self) -> BrokerProcess:
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._keys().items()))
        command = [
            sys.executable,
            "-m",
            "ottla",
            "storage",
            "format",
            "-c",
            str(config),
            "-t",
            "auto",
            *_ADD_SCRAM,
        ]
        subprocess.run(command, check=True, capture_output=True)
        return BrokerProcess(self.folder / "data", config=config, arguments=["--log-level", "info"]).start()

    def _apache(self) -> ApacheKafka:
        node = ApacheKafka(self.folder, self._keys())
        node.port = self.ports["INNER"]
        node.format(*_ADD_SCRAM)
        return node.start()

    def _prepare(self) -> None:
        for kind, name in (
            (ResourceType.TOPIC, "t-"),
            (ResourceType.GROUP, "t-"),
            (ResourceType.TRANSACTIONAL_ID, "t-"),
        ):
            acl = AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED,
                "User:alice",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            self.admin.create_acls([acl])[acl].result(60)

    def topic(self, name: str) -> str:
        self.admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
        return name

    def way(self, name: str, user: str = "alice") -> Way:
        listener = {"SSL": "SSL", "mTLS": "MTLS"}.get(name, "SASL_SSL")
        at, trust = f"127.0.0.1:{self.ports[listener]}", self.trust
        if name in ("SSL", "mTLS"):
            return Way(name, at, trust, self.folder / "alice.pem" if name == "mTLS" else None)
        if name == "OAUTHBEARER":
            return Way(name, at, trust, token=self.issuer.token(user))
        return Way(name, at, trust, user=user, password=SECRETS[user])

    def close(self) -> None:
        self.issuer.close()
        if isinstance(self._node, BrokerProcess):
            try:
                assert self._node.stop() == 0, self._node.log
                assert "Traceback" not in self._node.log, self._node.log
                assert not any(secret in self._node.log for secret in SECRETS.values())
            finally:
                self._node.kill()
        else:
            self._node.kill()
