"""`ottla.security.profile`: what is commonly configured by mistake. `standard` warns of it, `strict` refuses it.

Each finding names the key to change. Only the configuration and the modes of its files are looked at.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, SecurityProtocol
from ottla.config.security_profile import PROFILE_KEY, is_strict
from ottla.security.node_identity import IDENTITY_KEY, NodeIdentity

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_logger = logging.getLogger(__name__)

PLAINTEXT_KEY: Final = "ottla.plaintext.listeners"
STRICT_UNAUTHENTICATED_BYTES: Final = 64 << 10
"""The largest frame of a client that has not authenticated, in strict."""

_REUSABLE_SECRETS: Final = frozenset({"PLAIN", "OAUTHBEARER"})
_JAAS_FILE_FLAG: Final = "-Djava.security.auth.login.config="
_WITHOUT_TLS: Final = (SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT)
_WITH_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Finding(NamedTuple):
    """Something that is not safe: the key that decides it, and a sentence for the operator."""

    key: str
    sentence: str


def check_profile(config: BrokerConfig) -> list[Finding]:
    """What to warn of; in strict, refuse the first finding. Called before the node writes anything."""
    found = [*settings_findings(config), *file_findings(secret_files(config))]
    if is_strict(config):
        found += [*_identity_findings(config), *directory_findings(config)]
        report(found, strict=True)
    return found


def report(found: Iterable[Finding], *, strict: bool) -> None:
    """Warn of each finding, or refuse the first one."""
    for finding in found:
        if strict:
            raise ConfigError(f"{PROFILE_KEY}=strict refuses this: {finding.sentence}", key=finding.key)
        _logger.warning("%s", finding.sentence)


# -- settings


def settings_findings(config: BrokerConfig) -> Iterator[Finding]:
    """What the keys themselves say."""
    named = {name.strip().upper() for name in config.static.get(PLAINTEXT_KEY, "").split(",") if name.strip()}
    unknown = named - {listener.name for listener in config.listeners}
    if unknown:
        raise ConfigError.bad_value(
            PLAINTEXT_KEY, ",".join(sorted(unknown)), "names of listeners of this node"
        )
    for listener in config.listeners:
        yield from _listener_findings(config, listener, allowed=listener.name in named)
    yield from _authorizer_findings(config)


def _listener_findings(config: BrokerConfig, listener: Listener, *, allowed: bool) -> Iterator[Finding]:
    if listener.protocol not in _WITHOUT_TLS or is_loopback(listener.host):
        return
    place = f"listener {listener.name} ({listener.protocol.name} on {listener.address})"
    # A listener that is named as plain on purpose still must not carry passwords that can be used again.
    risky = sorted(_REUSABLE_SECRETS & set(_mechanisms(config, listener)))
    if risky:
        yield Finding(
            "sasl.enabled.mechanisms",
            f"{place} takes {' and '.join(risky)} without TLS: passwords and tokens cross the network in the clear; "
            "use SASL_SSL, or SCRAM in sasl.enabled.mechanisms",
        )
    if not allowed:
        yield Finding(
            "listeners",
            f"{place} has no TLS and is not on the loopback interface: use SSL or SASL_SSL in "
            f"listener.security.protocol.map, or name it in {PLAINTEXT_KEY} if the network is private",
        )


def _mechanisms(config: BrokerConfig, listener: Listener) -> tuple[str, ...]:
    if listener.protocol not in _WITH_SASL:
        return ()
    text = of_listener(config, listener, "sasl.enabled.mechanisms")
    return tuple(word.strip().upper() for word in text.split(",") if word.strip())


def of_listener(config: BrokerConfig, listener: Listener, key: str) -> str:
    """The text of a key for a listener, its own before the plain one; empty if neither is set."""
    own = f"listener.name.{listener.name.lower()}.{key}"
    return config.static.get(own, config.static.get(key, ""))


def _authorizer_findings(config: BrokerConfig) -> Iterator[Finding]:
    authenticating = [
        listener.name
        for listener in config.listeners
        if listener.protocol in _WITH_SASL
        or (
            listener.protocol is SecurityProtocol.SSL
            and of_listener(config, listener, "ssl.client.auth").strip().lower() == "required"
        )
    ]
    if not config.str("authorizer.class.name").strip():
        if authenticating:
            yield Finding(
                "authorizer.class.name",
                f"clients of listener {', '.join(authenticating)} authenticate, but without authorizer.class.name each "
                "of them may do everything",
            )
        return
    if config.static.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true":
        yield Finding(
            "allow.everyone.if.no.acl.found",
            "allow.everyone.if.no.acl.found=true lets every client use what has no ACL yet: new topics too",
        )
    super_users = {word.strip() for word in config.static.get("super.users", "").split(";")}
    if "User:ANONYMOUS" in super_users:
        yield Finding(
            "super.users",
            "super.users has User:ANONYMOUS: clients that do not authenticate may do everything; authenticate the "
            "nodes by SASL or ssl.client.auth=required instead",
        )


def _identity_findings(config: BrokerConfig) -> Iterator[Finding]:
    if config.controller_listener_names and not NodeIdentity.of(config).required:
        yield Finding(
            IDENTITY_KEY,
            f"without {IDENTITY_KEY}=required, a client with CLUSTER_ACTION can pose as any node",
        )


def is_loopback(host: str) -> bool:
    """Whether a listener's host can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# -- files


def secret_files(config: BrokerConfig) -> list[tuple[str, str]]:
    """The files with keys and passwords that the configuration names, each with its key."""
    found = [
        (key, text)
        for key, text in config.static.items()
        if key.endswith("ssl.keystore.location") and text.strip()
    ]
    for word in os.environ.get("KAFKA_OPTS", "").split():
        if word.startswith(_JAAS_FILE_FLAG):
            found.append(("java.security.auth.login.config", word.removeprefix(_JAAS_FILE_FLAG)))
    return found


def file_findings(files: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Files that others than their owner can read. A file that is missing is refused where it is opened."""
    for key, path in files:
        mode = _mode(path)
        if mode is not None and mode & 0o077:
            yield Finding(
                key,
                f"{path} ({key}) has mode {mode:04o}, so that others on this machine can read it: chmod 600 {path}",
            )


def directory_findings(config: BrokerConfig) -> Iterator[Finding]:
    """Data directories that others can look into: SCRAM keys and dynamic passwords are in the metadata log."""
    for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
        mode = _mode(path)
        if mode is not None and mode & 0o077:
            yield Finding(
                "log.dirs",
                f"the directory {path} has mode {mode:04o}, so that others can read it: chmod 700 {path}",
            )


def _mode(path: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None
