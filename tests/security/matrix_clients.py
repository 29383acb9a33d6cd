"""Six clients that each write, transact and read in a group, and that each say why they were not let in.

`work` returns the values that the client has read; `complaint` the part of its error that a user would search for.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import re
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from oracle.kafka_tools import run_tool
from ottla.testing.apache import java_is_here
from security.matrix_node import SECRETS, Way

VALUES = [b"0", b"1", b"2", b"3", b"4", b"5"]
PLAIN_VALUES, COMMITTED = VALUES[:3], VALUES[3:]
TOOLS = "org.apache.kafka.tools"


class Confluent:
    """confluent-kafka, on librdkafka."""

    def settings(self, way: Way) -> dict[str, Any]:
        settings = way.librdkafka()
        if way.token:
            settings["oauth_cb"] = lambda _: (way.token, time.time() + 300)
        return settings

    def work(self, way: Way, topic: str) -> list[bytes]:
        settings = self.settings(way)
        producer = Producer(settings)
        for value in PLAIN_VALUES:
            producer.produce(topic, value)
        assert producer.flush(60) == 0
        producer = Producer(settings | {"transactional.id": f"{topic}-confluent"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in COMMITTED:
            producer.produce(topic, value)
        producer.commit_transaction(60)
        consumer = Consumer(settings | {"group.id": f"{topic}-confluent", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        got: list[bytes] = []
        while len(got) < len(VALUES):
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            got.append(message.value() or b"")
        consumer.commit(asynchronous=False)
        consumer.close()
        return got

    def complaint(self, way: Way, topic: str) -> str:
        errors: list[KafkaError | None] = []
        producer = Producer(
            self.settings(way)
            | {"error_cb": errors.append, "message.timeout.ms": 5_000, "reconnect.backoff.ms": 50}
        )
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        for _ in range(600):
            producer.poll(0.1)
            known = [error for error in errors if error and error.code() != KafkaError._ALL_BROKERS_DOWN]
            if known:
                producer.purge()
                return f"{known[0].name()}: {sentence(known[0].str())}"
        raise AssertionError("no error came within a minute")


class KafkaPython:
    """kafka-python."""

    def settings(self, way: Way) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": way.bootstrap,
            "security_protocol": way.protocol,
            "ssl_cafile": str(way.trust),
        }
        if way.certificate is not None:
            settings |= {"ssl_certfile": str(way.certificate), "ssl_keyfile": str(way.certificate)}
        if way.mechanism:
            settings["sasl_mechanism"] = way.mechanism
        if way.token:
            from kafka.net.sasl.oauth import AbstractTokenProvider

            class Provider(AbstractTokenProvider):  # type: ignore[misc]
                def token(self) -> str:
                    return way.token

            settings["sasl_oauth_token_provider"] = Provider()
        if way.user:
            settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        return settings

    def work(self, way: Way, topic: str) -> list[bytes]:
        from kafka import KafkaConsumer, KafkaProducer

        settings = self.settings(way)
        producer = KafkaProducer(**settings)
        for value in PLAIN_VALUES:
            producer.send(topic, value).get(60)
        producer.close()
        producer = KafkaProducer(**settings, transactional_id=f"{topic}-kafka-python")
        producer.init_transactions()
        producer.begin_transaction()
        for value in COMMITTED:
            producer.send(topic, value)
        producer.commit_transaction()
        producer.close()
        consumer = KafkaConsumer(
            topic,
            **settings,
            group_id=f"{topic}-kafka-python",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=60_000,
        )
        got = [next(consumer).value for _ in VALUES]
        consumer.commit()
        consumer.close()
        return got

    def complaint(self, way: Way, topic: str) -> str:
        from kafka import KafkaProducer
        from kafka.errors import KafkaError as Failure

        # It tries a wrong login again until it gives up; a right one needs its time.
        patience_ms = 60_000 if way.password in SECRETS.values() else 2_000
        limits = {"bootstrap_timeout_ms": patience_ms, "max_block_ms": patience_ms}
        try:
            producer = KafkaProducer(**self.settings(way), **limits)
        except Failure as error:
            return f"{type(error).__name__}: {sentence(str(error))}"
        try:
            producer.send(topic, b"x").get(60)
        except Failure as error:
            return f"{type(error).__name__}: {sentence(str(error))}"
        finally:
            producer.close(timeout=1)
        raise AssertionError("it was let in")


class AioKafka:
    """aiokafka."""

    def settings(self, way: Way) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(way.trust))
        if way.certificate is not None:
            context.load_cert_chain(way.certificate)
        settings: dict[str, Any] = {
            "bootstrap_servers": way.bootstrap,
            "security_protocol": way.protocol,
            "ssl_context": context,
        }
        if way.mechanism:
            settings["sasl_mechanism"] = way.mechanism
        if way.token:
            from aiokafka.abc import AbstractTokenProvider

            class Provider(AbstractTokenProvider):  # type: ignore[misc]
                async def token(self) -> str:
                    return way.token

            settings["sasl_oauth_token_provider"] = Provider()
        if way.user:
            settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        return settings

    def work(self, way: Way, topic: str) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        async def run() -> list[bytes]:
            settings = self.settings(way)
            async with AIOKafkaProducer(**settings) as producer:
                for value in PLAIN_VALUES:
                    await producer.send_and_wait(topic, value)
            async with AIOKafkaProducer(**settings, transactional_id=f"{topic}-aiokafka") as producer:
                async with producer.transaction():
                    for value in COMMITTED:
                        await producer.send_and_wait(topic, value)
            async with AIOKafkaConsumer(
                topic,
                **settings,
                group_id=f"{topic}-aiokafka",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer:
                got = [(await consumer.getone()).value for _ in VALUES]
                await consumer.commit()
                return got

        return asyncio.run(asyncio.wait_for(run(), 120))

    def complaint(self, way: Way, topic: str) -> str:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaError as Failure

        async def run() -> str:
            producer = AIOKafkaProducer(**self.settings(way), request_timeout_ms=5_000)
            try:
                await producer.start()
                await producer.send_and_wait(topic, b"x")
            except Failure as error:
                return f"{type(error).__name__}: {sentence(str(error))}"
            finally:
                await producer.stop()
            raise AssertionError("it was let in")

        return asyncio.run(asyncio.wait_for(run(), 60))


class Franz:
    """franz-go: a small program in Go, built once."""

    def __init__(self) -> None:
        if shutil.which("go") is None:
            pytest.skip("needs Go (Debian package golang) for franz-go")

    def run(self, way: Way, topic: str, more: dict[str, str]) -> str:
        given = {
            "Brokers": way.bootstrap,
            "CA": str(way.trust),
            "Certificate": str(way.certificate or ""),
            "Mechanism": way.mechanism,
            "User": way.user,
            "Password": way.password,
            "Token": way.token,
            "Topic": topic,
            "DelegationToken": way.delegation_token,
        } | more
        done = subprocess.run([_franz(), json.dumps(given)], capture_output=True, text=True, timeout=120)
        return done.stdout.strip() or done.stderr

    def work(self, way: Way, topic: str, **more: str) -> list[bytes]:
        """`more` are further members of the program's argument."""
        said = self.run(way, topic, more)
        assert not said.startswith("error"), said
        return [each.encode() for each in said.split(",")]

    def complaint(self, way: Way, topic: str) -> str:
        return sentence(self.run(way, topic, {}))


class Kcat:
    """kcat, which has no transactions."""

    def __init__(self) -> None:
        if shutil.which("kcat") is None:
            pytest.skip("needs kcat (Debian package kcat)")

    def _command(self, way: Way, *words: str) -> list[str]:
        settings = {key: text for key, text in way.librdkafka().items() if key != "bootstrap.servers"}
        flags = [word for key, text in settings.items() for word in ("-X", f"{key}={text}")]
        return ["kcat", "-b", way.bootstrap, *flags, *words]

    def work(self, way: Way, topic: str) -> list[bytes]:
        if way.mechanism == "OAUTHBEARER":
            pytest.skip("kcat takes no tokens from outside")
        self._need_scram(way)
        lines = b"".join(value + b"\n" for value in VALUES)
        subprocess.run(self._command(way, "-P", "-t", topic), input=lines, check=True, timeout=60)
        words = (
            "-X",
            "auto.offset.reset=earliest",
            "-q",
            "-c",
            str(len(VALUES)),
            "-G",
            f"{topic}-kcat",
            topic,
        )
        read = subprocess.run(self._command(way, *words), check=True, capture_output=True, timeout=90)
        return read.stdout.splitlines()

    def _need_scram(self, way: Way) -> None:
        if way.mechanism.startswith("SCRAM") and _librdkafka_of_kcat() < (2, 6, 1):
            # It sends its nonce twice, which Kafka refuses since CVE-2024-56128, and so does Ottla.
            pytest.skip("kcat is built with a librdkafka older than 2.6.1, whose SCRAM brokers refuse")

    def complaint(self, way: Way, topic: str) -> str:
        self._need_scram(way)
        done = subprocess.run(
            self._command(way, "-P", "-t", topic, "-X", "message.timeout.ms=12000"),
            input=b"x\n",
            capture_output=True,
            timeout=60,
        )
        assert done.returncode != 0
        return sentence(done.stderr.decode())


class Java:
    """Java's own client, by Kafka's tools."""

    def __init__(self) -> None:
        if not java_is_here():
            pytest.skip("needs a JVM and Maven to run Apache Kafka's own programs")

    def work(self, way: Way, topic: str) -> list[bytes]:
        if way.mechanism == "OAUTHBEARER":
            pytest.skip("tests/oracle/test_security_oauth_java.py has Java's client with tokens")
        file = way.properties(way.trust.parent)
        at = ("--bootstrap-server", way.bootstrap, "--topic", topic, "--command-config", file)
        lines = "".join(f"{value.decode()}\n" for value in PLAIN_VALUES)
        run_tool(f"{TOOLS}.ConsoleProducer", *at, stdin=lines)
        payload = way.trust.parent / "payload"
        payload.write_text("\n".join(value.decode() for value in COMMITTED))
        run_tool(
            f"{TOOLS}.ProducerPerformance",
            *(
                "--topic",
                topic,
                "--num-records",
                len(COMMITTED),
                "--throughput",
                -1,
                "--payload-file",
                payload,
            ),
            *("--transactional-id", f"{topic}-java", "--transaction-duration-ms", 1000),
            *("--bootstrap-server", way.bootstrap, "--command-config", file),
        )
        read = run_tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *at,
            *("--group", f"{topic}-java", "--from-beginning", "--max-messages", len(VALUES)),
            *("--isolation-level", "read_committed", "--timeout-ms", 60_000),
        )
        found = [line.encode() for line in read.splitlines() if re.fullmatch(r"\d", line)]
        # The payloads are drawn at random.
        assert found[:3] == PLAIN_VALUES and set(found[3:]) <= set(COMMITTED) and len(found) == len(VALUES), (
            read
        )
        return VALUES

    def complaint(self, way: Way, topic: str) -> str:
        file = way.properties(way.trust.parent)
        said = run_tool(
            f"{TOOLS}.VerifiableProducer",
            *(
                "--bootstrap-server",
                way.bootstrap,
                "--topic",
                topic,
                "--max-messages",
                1,
                "--command-config",
                file,
            ),
            check=False,
        )
        found = re.search(r'"exception":"class ([\w.]+)","message":"(.*?)"', said)
        assert found is not None, said
        return f"{found[1]}: {sentence(found[2])}"


CLIENTS: dict[str, Callable[[], Any]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "franz-go": Franz,
    "kcat": Kcat,
    "java": Java,
}

_SENTENCES = (
    r"Authentication failed: Invalid username or password",
    r"Authentication failed during authentication due to invalid credentials with SASL mechanism [\w-]+",
    r"Topic authorization failed",
    r"TOPIC_AUTHORIZATION_FAILED",
    r"Not authorized to access topics: \[[\w-]+\]",
    # Java answers every certificate that it does not accept with "unknown", OpenSSL says what is wrong with it.
    r"(?i)certificate.?(expired|unknown)|(expired|unknown) certificate",
)


def sentence(text: str) -> str:
    """What of a message came from the broker; addresses and times differ."""
    found = [match[0] for pattern in _SENTENCES if (match := re.search(pattern, text))]
    if found and "ertificate" in found[0]:
        return "the certificate is refused"
    return found[0] if found else re.sub(r"[\d.:/]+", "N", text)


@functools.cache
def _franz() -> str:
    """The program in Go; the build and its modules are cached by Go itself."""
    source = Path(__file__).parent / "franz"
    folder = Path(tempfile.mkdtemp(prefix="franz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "franz"
    done = subprocess.run(
        ["go", "build", "-o", str(program), "."], cwd=source, capture_output=True, text=True, timeout=500
    )
    if done.returncode != 0:
        pytest.skip(f"franz-go cannot be built: {done.stderr.strip()[-300:]}")
    return str(program)


@functools.cache
def _librdkafka_of_kcat() -> tuple[int, ...]:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said)
    return (0, 0, 0) if found is None else tuple(map(int, found.groups()))
