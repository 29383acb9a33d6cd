"""Roles: clusters, resources and verbs. What a principal may do is asked here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.json_types import Json

SEE, READ, PRODUCE, RESET, CHANGE, ADMIN, EXPORT = VERBS = (
    "see",
    "read",
    "produce",
    "reset",
    "change",
    "admin",
    "export",
)
_HARMLESS: Final = frozenset({SEE, READ})


class Forbidden(ApiException):
    """A principal may not do what it asks for."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)


@dataclass(frozen=True, slots=True)
class Role:
    """Patterns of clusters and resources (`topic:orders-*`, `group:*`, `cluster`), and the verbs on them."""

    name: str
    verbs: frozenset[str]
    clusters: tuple[str, ...] = ("*",)
    resources: tuple[str, ...] = ("*",)

    def allows(self, verb: str, cluster: str, resource: str) -> bool:
        return (
            verb in self.verbs
            and ("*" in self.clusters or any(fnmatchcase(cluster, pattern) for pattern in self.clusters))
            and ("*" in self.resources or any(fnmatchcase(resource, pattern) for pattern in self.resources))
        )

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Json]) -> Role:
        """A role of a users file; ApiException for a verb that does not exist."""
        verbs = frozenset(_texts(name, fields, "verbs", VERBS))
        unknown = sorted(verbs - set(VERBS))
        if unknown:
            raise ApiException(
                ErrorCode.INVALID_REQUEST,
                f"role {name}: there is no verb '{unknown[0]}'; expected {', '.join(VERBS)}",
            )
        return cls(
            name,
            verbs,
            tuple(_texts(name, fields, "clusters", ("*",))),
            tuple(_texts(name, fields, "resources", ("*",))),
        )


def _texts(name: str, fields: Mapping[str, Json], key: str, default: Iterable[str]) -> list[str]:
    found = fields.get(key, list(default))
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ApiException(ErrorCode.INVALID_REQUEST, f"role {name}: {key} must be a list of texts")
    return found


EVERYTHING: Final = Role("everything", frozenset(VERBS))


@dataclass(frozen=True, slots=True)
class Principal:
    """Who looks. `read_only` takes every verb but seeing and reading away."""

    name: str
    roles: tuple[Role, ...]
    read_only: bool = False

    def may(self, verb: str, cluster: str, resource: str) -> bool:
        if self.read_only and verb not in _HARMLESS:
            return False
        return any(role.allows(verb, cluster, resource) for role in self.roles)

    def may_everywhere(self, verb: str, cluster: str) -> bool:
        """Whether it may on every resource of a cluster, so that lists need not ask for each."""
        if self.read_only and verb not in _HARMLESS:
            return False
        return any("*" in role.resources and role.allows(verb, cluster, "*") for role in self.roles)

    def may_somewhere(self, verb: str, cluster: str) -> bool:
        """Whether there is any resource of a cluster on which it may."""
        if self.read_only and verb not in _HARMLESS:
            return False
        return any(
            verb in role.verbs and any(fnmatchcase(cluster, pattern) for pattern in role.clusters)
            for role in self.roles
        )

    def require(self, verb: str, cluster: str, resource: str) -> None:
        """Forbidden unless it may."""
        if self.may(verb, cluster, resource):
            return
        if self.read_only and verb not in _HARMLESS:
            raise Forbidden("The console was started with --read-only: it changes nothing.")
        raise Forbidden(f"{self.name} has no role with the verb '{verb}' on {resource} of {cluster}.")

    @property
    def role_names(self) -> frozenset[str]:
        return frozenset(role.name for role in self.roles)
