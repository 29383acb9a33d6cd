"""Java's own client with OAUTHBEARER: it gets tokens from a real token endpoint and works with Ottla."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from token_issuer import AUDIENCE, ISSUER, TokenIssuer

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_java_writes_and_reads_with_tokens(tmp_path: Path) -> None:
    issuer = TokenIssuer({"alice": "s3cret"})
    port = free_ports(1)[0]
    node = tmp_path / "server.properties"
    node.write_text(
        f"""
listeners=TOKENS://127.0.0.1:{port},INNER://127.0.0.1:0
listener.security.protocol.map=TOKENS:SASL_PLAINTEXT,INNER:PLAINTEXT
inter.broker.listener.name=INNER
log.dirs={tmp_path / "data"}
offsets.topic.replication.factor=1
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={OAUTH} required;
sasl.oauthbearer.jwks.endpoint.url={issuer.url}/jwks
sasl.oauthbearer.expected.issuer={ISSUER}
sasl.oauthbearer.expected.audience={AUDIENCE}
"""
    )
    client = tmp_path / "client.properties"
    client.write_text(
        f"""
security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.jaas.config={OAUTH} required;
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={issuer.url}/token
sasl.oauthbearer.client.credentials.client.id=alice
sasl.oauthbearer.client.credentials.client.secret=s3cret
"""
    )

    def java(tool: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/token"
        command = ["java", *LEAN_JVM_FLAGS, allowed, "-cp", kafka_classpath(), tool]
        command += ["--bootstrap-server", f"127.0.0.1:{port}", "--topic", "letters", *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)

    with BrokerProcess(tmp_path / "unused", config=node, arguments=["--log-level", "info"]) as broker:
        try:
            file = ("--command-config", str(client))
            wrote = java("org.apache.kafka.tools.ConsoleProducer", *file, stdin="dear\nOttla\n")
            assert wrote.returncode == 0, (wrote.stderr, broker.log)
            count = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
            read = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *file, *count)
            assert read.stdout.split() == ["dear", "Ottla"], (read.stderr, broker.log)
            assert issuer.asked >= 2
        finally:
            issuer.close()
    assert "Traceback" not in broker.log
