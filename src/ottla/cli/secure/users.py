"""Users and tenants of a running cluster: SCRAM credentials, ACLs and quotas over the wire, as the administrator."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.acls import Entry, Pattern, create_acls, delete_acls
from ottla.admin.errors import raise_for
from ottla.admin.users import (
    NewCredential,
    alter_quotas,
    alter_scram_credentials,
    describe_quotas,
    describe_scram_credentials,
)
from ottla.cli.secure.folder import ADMIN, SecureFolder, SecureProblem, check_user_name, write_new
from ottla.cli.secure.init import SCRAM_ITERATIONS, new_password
from ottla.cli.secure.plan import scram_properties
from ottla.cli.tools.base import Session
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType, ScramMechanism

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

Echo = Callable[[str], object]
MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)(i?)B?(?:/s)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3}
_OF_A_TENANT: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
_PRODUCE_KEY: Final = "producer_byte_rate"
_CONSUME_KEY: Final = "consumer_byte_rate"
_REQUEST_KEY: Final = "request_percentage"


@contextlib.contextmanager
def open_cluster(folder: SecureFolder, bootstrap: str | None) -> Iterator[Cluster]:
    """The cluster, with the administrator's login."""
    properties = folder.admin_properties()
    address = bootstrap or properties.get("bootstrap.servers", "")
    if not address:
        raise SecureProblem("admin.properties has no bootstrap.servers: give --bootstrap-server")
    cluster = Session(address, properties, as_json=False, to_controllers=False).cluster
    try:
        yield cluster
    finally:
        cluster.close()


def parse_bytes(text: str) -> float:
    """A size such as 10MB (decimal) or 10MiB (binary), as bytes a second."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise SecureProblem(
            f"'{text}' is no rate: expected a size for each second, as in 500kB, 10MB or 1MiB"
        )
    return float(int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].lower()]))


def add_user(folder: SecureFolder, name: str, bootstrap: str | None, echo: Echo) -> None:
    """A user with a random password, and the client properties of the user in the folder."""
    _check_new(folder, name)
    with open_cluster(folder, bootstrap) as cluster:
        _refuse_existing(cluster, name)
        _set_password(folder, cluster, name, bootstrap)
    echo(f"Added the user {name}, who may do nothing yet. The login is in {folder.properties(name)}.")


def remove_user(folder: SecureFolder, name: str, bootstrap: str | None, echo: Echo) -> None:
    """The user's credentials, ACLs and quotas, and the file with the login."""
    check_user_name(name)
    if name == ADMIN:
        raise SecureProblem(f"{ADMIN} is the administrator of this folder and stays")
    with open_cluster(folder, bootstrap) as cluster:
        # First what lets the user in; the rights go afterwards.
        response = alter_scram_credentials(cluster, deleted=[(name, MECHANISM)])
        missing = [each.error_code for each in response.results] == [ErrorCode.RESOURCE_NOT_FOUND]
        for each in response.results:
            if not missing:
                raise_for(each.error_code, each.error_message)
        mine = Entry(f"User:{name}", None, AclOperation.ANY, AclPermissionType.ANY)
        removed = delete_acls(cluster, [(Pattern(ResourceType.ANY, None, PatternType.ANY), mine)])
        count = 0
        for result in removed.filter_results:
            raise_for(result.error_code, result.error_message)
            count += len(result.matching_acls)
        _remove_quotas(cluster, name)
    folder.properties(name).unlink(missing_ok=True)
    if missing and not count:
        raise SecureProblem(f"there is no user {name}")
    echo(f"Removed the user {name} and {count} ACLs. Connections that are open end with their sessions.")


def list_users(folder: SecureFolder, bootstrap: str | None, echo: Echo) -> None:
    """The users with SCRAM credentials."""
    with open_cluster(folder, bootstrap) as cluster:
        response = describe_scram_credentials(cluster)
    for each in sorted(response.results, key=lambda result: result.user):
        kinds = sorted(
            f"{ScramMechanism(info.mechanism).name.replace('_', '-')} ({info.iterations} iterations)"
            for info in each.credential_infos
        )
        echo(f"{each.user}: {', '.join(kinds)}")


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The quotas of a tenant; None where it has none."""

    produce: str | None = None
    consume: str | None = None
    request_percentage: float | None = None

    def quotas(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if self.produce is not None:
            found[_PRODUCE_KEY] = parse_bytes(self.produce)
        if self.consume is not None:
            found[_CONSUME_KEY] = parse_bytes(self.consume)
        if self.request_percentage is not None:
            if not self.request_percentage > 0:
                raise SecureProblem("--requests: expected a percentage of one core above 0")
            found[_REQUEST_KEY] = self.request_percentage
        return found


def add_tenant(
    folder: SecureFolder, name: str, prefix: str, limits: TenantLimits, bootstrap: str | None, echo: Echo
) -> None:
    """A user with all rights on what begins with a prefix, and quotas. The password comes last."""
    _check_new(folder, name)
    if not prefix or len(prefix) > 200:
        raise SecureProblem("--prefix: expected 1 to 200 characters that the tenant's names begin with")
    quotas = limits.quotas()
    with open_cluster(folder, bootstrap) as cluster:
        _refuse_existing(cluster, name)
        if quotas and not cluster.supports(ApiKey.ALTER_CLIENT_QUOTAS):
            raise SecureProblem(
                "the brokers of this version serve no quotas, so nothing was made: leave --produce, --consume and "
                "--requests out, or use brokers that have them"
            )
        everything = Entry(f"User:{name}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        response = create_acls(
            cluster, [(Pattern(kind, prefix, PatternType.PREFIXED), everything) for kind in _OF_A_TENANT]
        )
        for each in response.results:
            raise_for(each.error_code, each.error_message)
        if quotas:
            alter_quotas(cluster, {"user": name}, quotas)
        _set_password(folder, cluster, name, bootstrap)
    echo(
        f"Added the tenant {name}: topics, groups and transactional ids that begin with {prefix} are its own."
    )
    for key, value in quotas.items():
        echo(f"  {key}={value:.15g}")
    echo(f"The login is in {folder.properties(name)}.")


def _check_new(folder: SecureFolder, name: str) -> None:
    check_user_name(name)
    folder.require()
    if folder.properties(name).exists():
        raise SecureProblem(f"{folder.properties(name)} exists already; nothing is overwritten")


def _refuse_existing(cluster: Cluster, name: str) -> None:
    found = describe_scram_credentials(cluster, [name]).results
    if any(each.error_code == ErrorCode.NONE for each in found):
        raise SecureProblem(f"the user {name} exists already; `ottla secure user remove {name}` removes it")


def _set_password(folder: SecureFolder, cluster: Cluster, name: str, bootstrap: str | None) -> None:
    password = new_password()
    own = folder.admin_properties()
    address = bootstrap or own["bootstrap.servers"]
    # The file first: a password that nobody has written down is lost.
    file = write_new(folder.properties(name), scram_properties(address, str(folder.trust), name, password))
    try:
        credential = NewCredential.of(
            name, MECHANISM, password.encode(), SCRAM_ITERATIONS, secrets.token_bytes(32)
        )
        for each in alter_scram_credentials(cluster, set_=[credential]).results:
            raise_for(each.error_code, each.error_message)
    except BaseException:
        file.unlink()
        raise


def _remove_quotas(cluster: Cluster, name: str) -> None:
    if not cluster.supports(ApiKey.ALTER_CLIENT_QUOTAS):
        return
    for found in describe_quotas(cluster, {"user": name}):
        alter_quotas(cluster, found.entity, {}, list(found.values))
