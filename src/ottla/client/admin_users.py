"""The admin client's methods for SCRAM credentials of users."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from ottla.admin import users as requests
from ottla.admin.users import NewCredential
from ottla.client.admin_base import AdminBase
from ottla.client.errors import IllegalArgumentError, for_code
from ottla.client.plain_data import Document
from ottla.credentials.scram_keys import MIN_ITERATIONS
from ottla.wire.enums import ScramMechanism

_SALT_BYTES: Final = 24


def _mechanism(given: ScramMechanism | int | str) -> ScramMechanism:
    if isinstance(given, str):
        return ScramMechanism[given.upper().replace("-", "_")]
    return ScramMechanism(given)


class UserScramCredentialDeletion:
    """A user whose credential of one mechanism is deleted.

    >>> from ottla import UserScramCredentialDeletion
    >>> UserScramCredentialDeletion("alice", "SCRAM-SHA-256")
    UserScramCredentialDeletion(alice, SCRAM_SHA_256)
    """

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """A user's new or changed password. The object keeps only its salted hash.

    >>> from ottla import UserScramCredentialUpsertion
    >>> UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret")
    UserScramCredentialUpsertion(alice, SCRAM_SHA_256, iterations=4096)
    """

    # kafka-python's; the tools choose more.
    DEFAULT_ITERATIONS = MIN_ITERATIONS

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | int | str,
        password: str | bytes,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("the mechanism must be SCRAM-SHA-256 or SCRAM-SHA-512")
        self.iterations = self.DEFAULT_ITERATIONS if iterations is None else iterations
        self.salt = os.urandom(_SALT_BYTES) if salt is None else salt
        secret = password.encode() if isinstance(password, str) else password
        self.credential = NewCredential.of(user, self.mechanism, secret, self.iterations, self.salt)
        self.salted_password = self.credential.salted_password

    def __repr__(self) -> str:
        return (
            f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"
        )


class UserAdmin(AdminBase):
    """Describe the credentials of users, set and delete them."""

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Change credentials: for each user None, or why it failed.

        Set a password::

            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret")])
        """
        new: list[NewCredential] = []
        deleted: list[tuple[str, ScramMechanism]] = []
        for one in alterations:
            if isinstance(one, UserScramCredentialDeletion):
                deleted.append((one.user, one.mechanism))
            elif isinstance(one, UserScramCredentialUpsertion):
                new.append(one.credential)
            else:
                raise IllegalArgumentError(
                    f"expected a UserScramCredentialUpsertion or -Deletion, not {type(one).__name__}"
                )
        response = self._run(requests.alter_scram_credentials, set_=new, deleted=deleted)
        return {one.user: _error_text(one.error_code, one.error_message) for one in response.results}

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, Document]:
        """Mechanisms and iterations of users; of all users if none is named.

        The mechanisms of one user::

            admin.describe_user_scram_credentials(["alice"])["alice"]["credential_infos"]
        """
        response = self._run(requests.describe_scram_credentials, users)
        return {
            one.user: {
                "error": _error_text(one.error_code, one.error_message),
                "credential_infos": [
                    {"mechanism": ScramMechanism(each.mechanism), "iterations": each.iterations}
                    for each in one.credential_infos
                ],
            }
            for one in response.results
        }


def _error_text(code: int, message: str | None) -> str | None:
    return (message or for_code(code).__name__) if code else None
