"""Both systems with TLS, SCRAM and ten thousand ACLs: throughput, logins, idle connections, decisions and quotas."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.systems import HELD_SETTINGS, Kafka, Ottla, System, cpu_seconds, rss_mb, stop_cleanly
from ottla.testing.certificates import CertificateAuthority, write_pkcs12
from ottla.testing.ports import free_ports

_SECURED = ("TLS", "LOGIN", "ACLS")
"""TLS without SASL; TLS and SCRAM; SCRAM without TLS, for a user that ACLs decide about."""
_PASSWORD = "changeit"
_ACLS = 10_000
_ACLS_AT_ONCE = 1000
_LOGINS = 200
_CONNECTIONS = 5000


def secure(bench: Bench) -> None:
    names = {system.name for system in bench.systems}
    directory = bench.directory / "secure"
    directory.mkdir(parents=True, exist_ok=True)
    authority = CertificateAuthority.create()
    trust = authority.write_truststore(directory / "ca.pem")
    write_pkcs12(authority.issue("broker"), directory / "broker.p12", _PASSWORD)
    ports = {each: dict(zip(_SECURED, free_ports(len(_SECURED)), strict=True)) for each in names}
    made: list[System] = [
        kind(directory / kind.name, _settings(directory), listeners=ports[kind.name])
        for kind in (Ottla, Kafka)
        if kind.name in names
    ]
    try:
        for system in made:
            system.start()
            _add_user(system)
            _add_acls(system)
        for system in bench.turns(systems=made):
            _measure(bench, system, trust, ports[system.name])
        for system in bench.turns(rounds=1, systems=made):
            _hold(bench, system, trust, f"127.0.0.1:{ports[system.name]['TLS']}")
        stop_cleanly(made)
    finally:
        for system in made:
            system.kill()
    if Ottla.name in names:
        from bench import micro_rights

        for name, microseconds in micro_rights.run().items():
            bench.sheet.add(Ottla.name, "secure, inside", name, "µs", microseconds)


def _hold(bench: Bench, system: System, trust: Path, bootstrap: str) -> None:
    """The memory of connections that are open and idle."""
    row = f"secure {_CONNECTIONS:,} TLS connections"
    before = rss_mb(system.pid)
    plan = Load(bootstrap, "", connections=_CONNECTIONS, security={"ssl.ca.location": str(trust)})
    holder = load.start("idle-tls", plan, signals_ready=True)
    try:
        load.wait_ready(holder)
        after = rss_mb(system.pid)
    finally:
        holder.terminate()
        holder.wait()
    bench.sheet.add(system.name, row, "memory of the broker", "MB", after)
    bench.sheet.add(system.name, row, "memory of one", "kB", (after - before) * 1000 / _CONNECTIONS)


def _settings(directory: Path) -> dict[str, object]:
    protocols = (
        "PLAINTEXT:PLAINTEXT",
        "CONTROLLER:PLAINTEXT",
        "TLS:SSL",
        "LOGIN:SASL_SSL",
        "ACLS:SASL_PLAINTEXT",
    )
    return {
        **HELD_SETTINGS,
        "listener.security.protocol.map": ",".join(protocols),
        "ssl.keystore.location": directory / "broker.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": _PASSWORD,
        "ssl.key.password": _PASSWORD,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        **{
            f"listener.name.{name.lower()}.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            for name in ("LOGIN", "ACLS")
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def _add_user(system: System) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("bench", info, b"bench")
    admin.alter_user_scram_credentials([change])["bench"].result(60)


def _add_acls(system: System) -> None:
    """Rights of many users on many topics; the rows' topics are allowed to `bench` by a prefix."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap})

    def acl(name: str, pattern: ResourcePatternType, user: str, operation: AclOperation) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )

    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    acls = [acl("secure", prefixed, "bench", each) for each in (AclOperation.WRITE, AclOperation.READ)]
    acls += [
        acl(f"topic-{n}", literal, f"user-{n % 500}", AclOperation.READ) for n in range(_ACLS - len(acls))
    ]
    for start in range(0, len(acls), _ACLS_AT_ONCE):
        for done in admin.create_acls(acls[start : start + _ACLS_AT_ONCE]).values():
            done.result(120)


def _measure(bench: Bench, system: System, trust: Path, ports: dict[str, int]) -> None:
    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "bench", "sasl.password": "bench"}
    tls = {"ssl.ca.location": str(trust)}
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    _throughput(bench, system, "secure TLS 1 kB", at["TLS"], {"security.protocol": "SSL", **tls}, 1000)
    asked = {"security.protocol": "SASL_PLAINTEXT", **login}
    _throughput(bench, system, "secure 10,000 ACLs 100 B", at["ACLS"], asked, 100)
    plan = Load(at["LOGIN"], "", _LOGINS, security={"security.protocol": "SASL_SSL", **tls, **login})
    before = cpu_seconds(system.pid)
    seconds = load.run("logins", plan)["seconds"]
    cpu = cpu_seconds(system.pid) - before
    bench.sheet.add(system.name, "secure logins", "TLS and SCRAM", "logins/s", _LOGINS / seconds, higher=True)
    bench.sheet.add(system.name, "secure logins", "broker CPU of a login", "ms", cpu / _LOGINS * 1000)


def _throughput(
    bench: Bench, system: System, row: str, bootstrap: str, security: dict[str, str], size: int
) -> None:
    records = bench.scale.records(size)
    plan = Load(bootstrap, bench.topic(system, row, 4), records, size, security=security)
    for kind in ("produce", "consume"):
        bench.make_ready(plan)
        before = cpu_seconds(system.pid)
        seconds = load.run(kind, plan)["seconds"]
        cpu = cpu_seconds(system.pid) - before
        bench.sheet.add(system.name, row, kind, "records/s", records / seconds, higher=True)
        bench.sheet.add(system.name, row, f"{kind} broker CPU", "s/GB", cpu / (records * size / 1e9))
    load.delete_topic(system.bootstrap, plan.topic)
