"""What a server.properties of Apache Kafka holds that Ottla would refuse at the start, or treat differently.

It asks the code that reads the file at a start, key by key, so that one mistake does not hide the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.cli.findings import FAIL, OK, WARN, Finding
from ottla.config.acted_on import unused_keys
from ottla.config.broker import BrokerConfig
from ottla.config.checks import is_known
from ottla.config.definitions import BROKER_KEYS, OWN_DEFAULTS, OWN_KEYS
from ottla.config.errors import ConfigError
from ottla.config.listeners import SecurityProtocol
from ottla.config.providers import resolved
from ottla.config.synonyms import base_of_listener_key
from ottla.errors import ApiException
from ottla.wire.enums import ConfigType

_REMOTE_SWITCH: Final = "remote.log.storage.system.enable"
_DIRECTORY_KEYS: Final = ("log.dirs", "log.dir")

_CHANGES_MEANING: Final = {
    "alter.config.policy.class.name": "changes of settings that this policy refuses would be accepted",
    "create.topic.policy.class.name": "topics that this policy refuses would be created",
    "client.quota.callback.class": "quotas follow Kafka's own rules instead",
    "principal.builder.class": "users get Kafka's default names, so ACLs for names of this class do not fit",
}
"""Keys of Java classes whose absence a user would notice, and how."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A properties file: its findings, and the configuration as far as it can be read."""

    findings: list[Finding]
    config: BrokerConfig | None


def examine_config(texts: Mapping[str, str], file: str) -> Examined:
    """All findings about a file's keys. The configuration is None where it cannot be made."""
    found = [*_layout(texts), *_unknown(texts)]
    usable = {key: text for key, text in texts.items() if is_known(key)}
    try:
        usable = resolved(usable)
    except ConfigError as error:
        found.append(_refused(error, "config.providers"))
        return Examined(found, None)
    bad = list(_bad_values(usable))
    found += bad
    wrong = {finding.check for finding in bad}
    usable = {key: text for key, text in usable.items() if key not in wrong}
    try:
        config = BrokerConfig(usable)
    except ConfigError as error:
        found.append(_refused(error, file))
        return Examined(found, None)
    found += _without_effect(config)
    found += _defaults(config)
    found += _security(config, file)
    if not any(finding.state == FAIL for finding in found):
        found.insert(0, Finding(file, OK, f"Ottla starts with these {len(texts)} keys"))
    return Examined(found, config)


def _refused(error: ApiException, subject: str) -> Finding:
    key = error.key if isinstance(error, ConfigError) else None
    return Finding(key or subject, FAIL, error.message, "correct it in the file, then check again")


def _layout(texts: Mapping[str, str]) -> Iterator[Finding]:
    """What the file must say, because a guess would make another node of it."""
    if "process.roles" not in texts:
        zookeeper = "zookeeper.connect" in texts
        yield Finding(
            "process.roles",
            FAIL,
            "it is missing: this is not a node of a KRaft cluster",
            "move the cluster from ZooKeeper to KRaft with Apache Kafka 3.9, upgrade it to 4.x, then check again"
            if zookeeper
            else "set process.roles to broker, controller or both, as this node runs today",
        )
    if not any(texts.get(key, "").strip() for key in _DIRECTORY_KEYS):
        yield Finding(
            "log.dirs",
            FAIL,
            f"it is missing: Apache Kafka uses /tmp/kafka-logs then, and Ottla {OWN_DEFAULTS['log.dir']}",
            "set log.dirs to the directory that this node uses today",
        )


def _unknown(texts: Mapping[str, str]) -> Iterator[Finding]:
    for key in texts:
        if not is_known(key):
            yield Finding(
                key,
                FAIL,
                "Kafka 4.3 has no such key; Apache Kafka ignores it, Ottla refuses to start",
                "remove the line, or correct the name: a node reads the file only when it starts",
            )


def _bad_values(texts: Mapping[str, str]) -> Iterator[Finding]:
    for key, text in texts.items():
        definition = (
            BROKER_KEYS.get(key) or OWN_KEYS.get(key) or BROKER_KEYS.get(base_of_listener_key(key) or "")
        )
        try:
            if definition is not None:
                definition.parse(text)
        except ConfigError as error:
            yield Finding(key, FAIL, error.message, "correct the value")


def _without_effect(config: BrokerConfig) -> Iterator[Finding]:
    if config.bool(_REMOTE_SWITCH):
        yield Finding(
            _REMOTE_SWITCH,
            FAIL,
            "tiered storage is on: Ottla cannot read segments that are in remote storage only",
            "turn remote.storage.enable off for every topic, wait until all segments are local, then set it to false",
        )
    for key in unused_keys(config.static):
        if key.startswith(("remote.", "rlmm.", "rsm.")):
            continue
        meaning = _CHANGES_MEANING.get(key)
        if meaning is not None:
            yield Finding(key, WARN, f"Ottla loads no Java classes: {meaning}", "decide whether you need it")
        elif key in BROKER_KEYS and BROKER_KEYS[key].type is ConfigType.CLASS:
            yield Finding(
                key, WARN, "it names a Java class, which Ottla does not load", "no action is needed"
            )
        else:
            yield Finding(key, WARN, "it is accepted and has no effect", "no action is needed")


def _defaults(config: BrokerConfig) -> Iterator[Finding]:
    for key in sorted(OWN_DEFAULTS.keys() - {"log.dir"}):
        if not config.is_set(key):
            yield Finding(
                key,
                WARN,
                f"it is not set: Apache Kafka has no limit then, Ottla {config.int(key)}",
                f"set {key} if this node has more connections",
            )


# -- security


def _security(config: BrokerConfig, file: str) -> Iterator[Finding]:
    """The parts of a start that load key stores, logins and rights. None of them binds a port or writes."""
    for subject, attempt in _security_parts(config, file):
        try:
            warnings = attempt()
        except ApiException as error:
            yield _refused(error, subject)
        except OSError as error:
            yield Finding(subject, FAIL, f"{error.filename}: {error.strerror}", "correct it in the file")
        else:
            yield from warnings


def _security_parts(config: BrokerConfig, file: str) -> Iterator[tuple[str, Callable[[], Iterable[Finding]]]]:
    # Each of these loads cryptography or the server, and a file without security needs none of them.
    from ottla.security.node_identity import NodeIdentity
    from ottla.server.security import make_authorizer

    yield "ottla.security.profile", lambda: _profile(config, file)
    yield "authorizer.class.name", lambda: _done(make_authorizer(config))
    yield "ottla.node.identity", lambda: _done(NodeIdentity.of(config))
    secured = [each for each in config.listeners if each.protocol is not SecurityProtocol.PLAINTEXT]
    for listener in secured:
        from ottla.security.listener_security import ListenerSecurity

        yield f"listener {listener.name}", lambda listener=listener: _done(ListenerSecurity(config, listener))  # type: ignore[misc]
    if secured:
        from ottla.server.peer_security import peer_security

        yield "connections to other nodes", lambda: _done(peer_security(config))


def _done(_: object) -> Iterable[Finding]:
    return ()


def _profile(config: BrokerConfig, file: str) -> Iterable[Finding]:
    from ottla.config.secrets import is_secret
    from ottla.security.profile import check_profile, file_findings

    unsafe = check_profile(config)
    if any(is_secret(key) for key in config.static):
        unsafe += file_findings([("--config", file)])
    return [Finding(each.key, WARN, each.sentence, "Ottla warns of it and starts") for each in unsafe]
