"""Quotas and SCRAM credentials: the part of kafka-configs that is about users, clients and addresses."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.tools.base import Session
from ottla.cli.tools.failures import UsageProblem, raise_for
from ottla.cli.tools.failures import describe as describe_error
from ottla.cli.tools.values import java_double
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_ENTITY_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_QUOTAS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_QUOTAS: Final = frozenset({"connection_creation_rate"})
_MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_MIN_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 26
_EXACT, _DEFAULT, _ANY = 0, 1, 2
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
        told = ", ".join(f"{key}={java_double(value)}" for key, value in values.items())
        session.say(f"Quota configs for {shown} are {told}")
        documents.append({"entity": entity, "quotas": values})
    if types == ["users"] and "" not in names:
        documents += _describe_credentials(session, names)
    if session.as_json:
        session.dump(documents)


def _quotas(
    cluster: Cluster, types: list[str], names: list[str]
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    kind = DescribeClientQuotasRequest
    components = []
    for index, entity_type in enumerate(types):
        name = names[index] if index < len(names) else None
        match = _ANY if name is None else _DEFAULT if name == "" else _EXACT
        components.append(
            kind.ComponentData(entity_type=_ENTITY_TYPES[entity_type], match_type=match, match=name or None)
        )
    answer = cluster.ask(kind(components=components, strict=True))
    raise_for(answer.error_code, answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _describe_credentials(session: Session, names: list[str]) -> list[object]:
    kind = DescribeUserScramCredentialsRequest
    users = [kind.UserName(name=name) for name in names] if names else None
    answer = session.cluster.ask(kind(users=users))
    raise_for(answer.error_code, answer.error_message)
    mechanisms = {number: name for name, (number, _) in _MECHANISMS.items()}
    documents: list[object] = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code != ErrorCode.NONE:
            session.complain(f"{result.user}: {describe_error(result.error_code, result.error_message)}")
            continue
        infos = {
            mechanisms.get(each.mechanism, "UNKNOWN"): each.iterations for each in result.credential_infos
        }
        told = ", ".join(f"{name}=iterations={count}" for name, count in infos.items())
        session.say(f"SCRAM credential configs for user-principal '{result.user}' are {told}")
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
    kind = AlterClientQuotasRequest
    entity = [
        kind.EntityData(entity_type=_ENTITY_TYPES[entity_type], entity_name=name or None)
        for entity_type, name in zip(types, names, strict=True)
    ]
    changes = [kind.OpData(key=key, value=_number(key, value), remove=False) for key, value in added.items()]
    changes += [kind.OpData(key=key, value=0.0, remove=True) for key in deleted]
    answer = cluster.ask(kind(entries=[kind.EntryData(entity=entity, ops=changes)]))
    for entry in answer.entries:
        raise_for(entry.error_code, entry.error_message)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageProblem(f"{key}={text}: expected a number") from None


def _alter_credentials(cluster: Cluster, user: str, added: dict[str, str], deleted: list[str]) -> None:
    kind = AlterUserScramCredentialsRequest
    deletions = [kind.ScramCredentialDeletion(name=user, mechanism=_MECHANISMS[key][0]) for key in deleted]
    upsertions = [_upsertion(user, mechanism, text) for mechanism, text in added.items()]
    answer = cluster.ask(kind(deletions=deletions, upsertions=upsertions))
    for result in answer.results:
        raise_for(result.error_code, result.error_message, result.user)


def _upsertion(user: str, mechanism: str, text: str) -> Any:
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise UsageProblem(f"{mechanism}={text}: expected [iterations=N,password=...]")
    iterations = int(found[1]) if found[1] not in (None, "", "-1") else _MIN_ITERATIONS
    if iterations < _MIN_ITERATIONS:
        raise UsageProblem(
            f"{mechanism}: {iterations} iterations are fewer than the least, {_MIN_ITERATIONS}"
        )
    number, digest = _MECHANISMS[mechanism]
    salt = secrets.token_bytes(_SALT_BYTES)
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(digest, found[2].encode(), salt, iterations),
    )
