"""Quotas and SCRAM credentials: the part of kafka-configs that is about users, clients and addresses."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import describe_error, raise_for
from ottla.admin.users import (
    DEFAULT_SCRAM_ITERATIONS,
    NewCredential,
    Quotas,
    alter_quotas,
    alter_scram_credentials,
    describe_quotas,
    describe_scram_credentials,
)
from ottla.cli.tools.base import Session
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import java_double
from ottla.credentials.scram_keys import MIN_ITERATIONS
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ScramMechanism

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_ENTITY_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_QUOTAS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_QUOTAS: Final = frozenset({"connection_creation_rate"})
_MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_SALT_BYTES: Final = 26
_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?\d*),)?password=(.*)")


def describe(session: Session, types: list[str], names: list[str]) -> None:
    """Show the quotas, and the credentials of users."""
    documents: list[object] = []
    for entity, values in _quotas(session.cluster, types, names):
        shown = ", ".join(
            f"{_TITLES[kind]} '{entity[kind]}'"
            if entity[kind] is not None
            else f"the default {_TITLES[kind]}"
            for kind in _TITLES
            if kind in entity
        )
        values_text = ", ".join(f"{key}={java_double(value)}" for key, value in values.items())
        session.print(f"Quota configs for {shown} are {values_text}")
        documents.append({"entity": entity, "quotas": values})
    if types == ["users"] and "" not in names:
        documents += _describe_credentials(session, names)
    if session.as_json:
        session.dump(documents)


def _quotas(cluster: Cluster, types: list[str], names: list[str]) -> list[Quotas]:
    entity = {_ENTITY_TYPES[kind]: name or None for kind, name in zip(types, names, strict=False)}
    return describe_quotas(cluster, entity, [_ENTITY_TYPES[kind] for kind in types[len(names) :]])


def _describe_credentials(session: Session, names: list[str]) -> list[object]:
    mechanisms = {mechanism.value: name for name, mechanism in _MECHANISMS.items()}
    documents: list[object] = []
    for result in describe_scram_credentials(session.cluster, names or None).results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code != ErrorCode.NONE:
            session.error(f"{result.user}: {describe_error(result.error_code, result.error_message)}")
            continue
        infos = {
            mechanisms.get(each.mechanism, "UNKNOWN"): each.iterations for each in result.credential_infos
        }
        values_text = ", ".join(f"{name}=iterations={count}" for name, count in infos.items())
        session.print(f"SCRAM credential configs for user-principal '{result.user}' are {values_text}")
        documents.append({"user": result.user, "scram": infos})
    return documents


def alter(
    session: Session, types: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    """Set and remove quotas, or the credentials of one user."""
    keys = {*added, *deleted}
    credentials = {key for key in keys if key in _MECHANISMS} if types == ["users"] else set()
    strangers = keys - (_IP_QUOTAS if types == ["ips"] else _QUOTAS) - credentials
    if strangers:
        raise UsageProblem(f"{', '.join(sorted(strangers))} cannot be set for {' and '.join(types)}")
    if not credentials:
        _alter_quotas(session.cluster, types, names, added, deleted)
    elif credentials != keys:
        raise UsageProblem("quotas and SCRAM credentials cannot be changed at once")
    elif names == [""]:
        raise UsageProblem("there are no default SCRAM credentials: name a user")
    else:
        _alter_credentials(session.cluster, names[0], added, deleted)


def _alter_quotas(
    cluster: Cluster, types: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    current = next((values for _, values in _quotas(cluster, types, names)), {})
    missing = [key for key in deleted if key not in current]
    if missing:
        raise ApiException(ErrorCode.INVALID_CONFIG, f"Invalid config(s): {','.join(missing)}")
    entity = {_ENTITY_TYPES[kind]: name or None for kind, name in zip(types, names, strict=True)}
    alter_quotas(cluster, entity, {key: _number(key, value) for key, value in added.items()}, deleted)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageProblem(f"{key}={text}: expected a number") from None


def _alter_credentials(cluster: Cluster, user: str, added: dict[str, str], deleted: list[str]) -> None:
    response = alter_scram_credentials(
        cluster,
        set_=[_credential(user, mechanism, text) for mechanism, text in added.items()],
        deleted=[(user, _MECHANISMS[key]) for key in deleted],
    )
    for result in response.results:
        raise_for(result.error_code, result.error_message, result.user)


def _credential(user: str, mechanism: str, text: str) -> NewCredential:
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise UsageProblem(f"{mechanism}={text}: expected [iterations=N,password=...]")
    iterations = int(found[1]) if found[1] not in (None, "", "-1") else DEFAULT_SCRAM_ITERATIONS
    if iterations < MIN_ITERATIONS:
        raise UsageProblem(f"{mechanism}: {iterations} iterations are fewer than the least, {MIN_ITERATIONS}")
    salt = secrets.token_bytes(_SALT_BYTES)
    return NewCredential.of(user, _MECHANISMS[mechanism], found[2].encode(), iterations, salt)
