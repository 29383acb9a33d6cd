"""`ottla secure check`: files, certificates and settings of the folder; ACLs and users of the running cluster."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from ottla.admin.acls import ANY_ENTRY, ANY_PATTERN, Entry, Pattern, describe_acls
from ottla.admin.users import describe_scram_credentials
from ottla.cli.secure.folder import ADMIN, SecureFolder, SecureProblem, certificate_names
from ottla.cli.secure.users import open_cluster
from ottla.cli.settings import node_config
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.security_profile import PROFILE_KEY, is_strict
from ottla.credentials.contexts import TlsConfig, client_context, server_context
from ottla.credentials.errors import CredentialsError
from ottla.security.node_identity import NODE_URI
from ottla.security.profile import (
    directory_findings,
    file_findings,
    secret_files,
    settings_findings,
)
from ottla.security.tls_material import listener_keys
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

_SOON: Final = timedelta(days=30)
_SECRET: Final = ("*.pem", "*.properties", "*.scram", "data-*")
_MATCH_ALL: Final = "*"
_EVERYONE: Final = "User:*"


class Problem(NamedTuple):
    """A sentence, and whether it is a risk or only worth knowing."""

    text: str
    risk: bool = True

    def __str__(self) -> str:
        return self.text if self.risk else f"(note) {self.text}"


# -- files


def check_files(folder: SecureFolder) -> list[Problem]:
    """What is not safe in the folder: modes, certificates, settings."""
    folder.require()
    found = [*_modes(folder)]
    for name in [*(f"node-{node_id}" for node_id in folder.node_ids()), ADMIN]:
        if folder.key_store(name).exists():
            found += _certificate(folder.key_store(name), folder)
    if folder.trust.exists():
        found += _expiry(folder.trust, folder.load_current(folder.trust))
    for node_id in folder.node_ids():
        found += _settings(folder, node_id)
    return found


def _modes(folder: SecureFolder) -> Iterator[Problem]:
    for path in [folder.path, *(each for kind in _SECRET for each in sorted(folder.path.glob(kind)))]:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077 and path != folder.trust:
            right = "700" if path.is_dir() else "600"
            yield Problem(f"{path} has mode {mode:04o}, so that others can read it: chmod {right} {path}")


def _expiry(path: Path, certificate: x509.Certificate) -> Iterator[Problem]:
    now, end = datetime.now(UTC), certificate.not_valid_after_utc
    if end <= now:
        yield Problem(
            f"the certificate in {path} expired on {end:%Y-%m-%d}: `ottla secure renew` makes a new one"
        )
    elif end - now < _SOON:
        yield Problem(
            f"the certificate in {path} expires on {end:%Y-%m-%d}: `ottla secure renew` makes a new one"
        )


def _certificate(path: Path, folder: SecureFolder) -> Iterator[Problem]:
    try:
        certificate = folder.load_current(path)
    except SecureProblem as problem:
        yield Problem(problem.message or str(problem))
        return
    yield from _expiry(path, certificate)
    if folder.trust.exists():
        try:
            certificate.verify_directly_issued_by(folder.load_current(folder.trust))
        except (ValueError, TypeError, InvalidSignature):
            yield Problem(f"the certificate in {path} is not from the authority in {folder.trust}")


def _settings(folder: SecureFolder, node_id: int) -> Iterator[Problem]:
    file = folder.properties(f"node-{node_id}")
    try:
        config = node_config(str(file))
        if not is_strict(config):
            yield Problem(f"{file} does not set {PROFILE_KEY}=strict, so that mistakes are warnings only")
        findings = [
            *settings_findings(config),
            *file_findings(secret_files(config)),
            *directory_findings(config),
        ]
    except ConfigError as error:
        yield Problem(f"{file}: {error.message}")
        return
    for finding in findings:
        yield Problem(f"{file}: {finding.sentence}")
    yield from _listeners(file, config)


def _listeners(file: Path, config: BrokerConfig) -> Iterator[Problem]:
    """Each TLS listener must have stores and suites that work, and a certificate with the names of the node."""
    for listener in config.listeners:
        if not listener.protocol.name.endswith("SSL"):
            continue
        try:
            keys = listener_keys(config, listener.name)
            _, identity = server_context(TlsConfig.of(keys), datetime.now(UTC))
            client_context(TlsConfig.of(keys), datetime.now(UTC))
        except CredentialsError as error:
            yield Problem(f"{file}: listener {listener.name} cannot use TLS: {error}")
            continue
        hosts, uris = certificate_names(identity.certificate)
        advertised = config.advertised(listener.name) or listener
        if advertised.host and advertised.host not in hosts:
            yield Problem(
                f"{file}: the certificate of listener {listener.name} does not have the name {advertised.host}, "
                "which clients connect to"
            )
        if f"{NODE_URI}{config.node_id}" not in uris:
            yield Problem(
                f"{file}: the certificate of listener {listener.name} has no URI {NODE_URI}{config.node_id}, so that "
                "it could stand for any node"
            )


# -- the running cluster


def check_cluster(folder: SecureFolder, bootstrap: str | None) -> list[Problem]:
    """ACLs that decide nothing or too much, and principals that match nothing."""
    with open_cluster(folder, bootstrap) as cluster:
        acls = [
            (pattern, entry)
            for pattern, entries in describe_acls(cluster, ANY_PATTERN, ANY_ENTRY).items()
            for entry in entries
        ]
        users = {each.user for each in describe_scram_credentials(cluster).results}
    return [*acl_problems(acls), *_principals(folder, acls, users)]


Acl = tuple[Pattern, Entry]


def acl_problems(acls: list[Acl]) -> Iterator[Problem]:
    """Rights that everybody has on the cluster, and entries that another one shadows."""
    for pattern, entry in acls:
        if (
            entry.permission is AclPermissionType.ALLOW
            and entry.principal == _EVERYONE
            and pattern.kind is ResourceType.CLUSTER
            and entry.operation is AclOperation.ALL
        ):
            yield Problem(f"{entry} on the cluster lets every client do everything to it")
    for own in acls:
        if own[1].permission is not AclPermissionType.ALLOW:
            continue
        other = _shadow(own, [each for each in acls if each[1].permission is AclPermissionType.DENY])
        if other is not None:
            yield Problem(
                f"{_shown(own)} has no effect, because {_shown(other)} denies all of it", risk=False
            )
            continue
        other = _shadow(
            own, [each for each in acls if each is not own and each[1].permission is own[1].permission]
        )
        if other is not None:
            yield Problem(f"{_shown(own)} adds nothing to {_shown(other)}", risk=False)


def _shadow(own: Acl, others: list[Acl]) -> Acl | None:
    return next((other for other in others if _covers(other, own)), None)


def _covers(wide: Acl, narrow: Acl) -> bool:
    """Whether an entry fits everything that another one fits."""
    (pattern, entry), (own, mine) = wide, narrow
    return (
        pattern.kind is own.kind
        and _pattern_covers(pattern, own)
        and entry.principal in (mine.principal, _EVERYONE)
        and entry.host in (mine.host, _MATCH_ALL)
        and entry.operation in (mine.operation, AclOperation.ALL)
    )


def _pattern_covers(wide: Pattern, narrow: Pattern) -> bool:
    if wide.pattern is PatternType.PREFIXED:
        return narrow.name != _MATCH_ALL and (narrow.name or "").startswith(wide.name or "")
    if wide.name == _MATCH_ALL:
        return True
    return narrow.pattern is PatternType.LITERAL and narrow.name == wide.name


def _shown(acl: Acl) -> str:
    pattern, entry = acl
    return (
        f"{entry.permission.name} {entry.operation.name} for {entry.principal} from {entry.host} on "
        f"{pattern.pattern.name} {pattern.kind.name} {pattern.name}"
    )


def _principals(folder: SecureFolder, acls: list[Acl], users: set[str]) -> Iterator[Problem]:
    super_users: set[str] = set()
    for node_id in folder.node_ids():
        config = node_config(str(folder.properties(f"node-{node_id}")))
        super_users |= {word.strip() for word in config.static.get("super.users", "").split(";")}
    named = {entry.principal or "" for _, entry in acls}
    for name in sorted(users):
        if f"User:{name}" not in super_users | named and _EVERYONE not in named:
            yield Problem(f"the user {name} has no ACL and may do nothing", risk=False)
    for principal in sorted(named - {_EVERYONE}):
        name = principal.removeprefix("User:")
        if name not in users and not name.startswith("CN="):
            yield Problem(f"there are ACLs of {principal}, and no SCRAM user of that name", risk=False)
