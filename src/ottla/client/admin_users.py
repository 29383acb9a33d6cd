"""The admin client's part about users who log in by SCRAM."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any, Final

from ottla.client.admin_connections import Connections
from ottla.client.errors import IllegalArgumentError, for_code
from ottla.wire import messages as m
from ottla.wire.enums import ScramMechanism

_SALT_BYTES: Final = 24


def _mechanism(given: ScramMechanism | int | str) -> ScramMechanism:
    if isinstance(given, str):
        return ScramMechanism[given.upper().replace("-", "_")]
    return ScramMechanism(given)


class UserScramCredentialDeletion:
    """A user whose credentials for a mechanism go."""

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """A user who gets a password, or another one. The password itself is not kept."""

    DEFAULT_ITERATIONS = 4096

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
        self.salted_password = hashlib.pbkdf2_hmac(
            self.mechanism.hash_name, secret, self.salt, self.iterations
        )

    def __repr__(self) -> str:
        return (
            f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"
        )


class UserAdmin:
    """Look at users, give them passwords, and take those away."""

    _connections: Connections

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Change credentials: for each user None, or why it could not be done."""
        request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
        for one in alterations:
            if isinstance(one, UserScramCredentialDeletion):
                request.deletions.append(
                    m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                        name=one.user, mechanism=one.mechanism
                    )
                )
            elif isinstance(one, UserScramCredentialUpsertion):
                request.upsertions.append(
                    m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                        name=one.user,
                        mechanism=one.mechanism,
                        iterations=one.iterations,
                        salt=one.salt,
                        salted_password=one.salted_password,
                    )
                )
            else:
                raise IllegalArgumentError(
                    f"expected a UserScramCredentialUpsertion or -Deletion, not {type(one).__name__}"
                )
        answer, _ = self._connections.ask(request)
        return {
            one.user: (one.error_message or for_code(one.error_code).__name__) if one.error_code else None
            for one in answer.results
        }

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Mechanisms and iterations of users; of all of them, if none is named."""
        kind = m.DescribeUserScramCredentialsRequest
        wanted = None if users is None else [kind.UserName(name=user) for user in users]
        answer, _ = self._connections.ask(kind(users=wanted))
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "users cannot be described")
        return {
            one.user: {
                "error": (one.error_message or for_code(one.error_code).__name__) if one.error_code else None,
                "credential_infos": [
                    {"mechanism": ScramMechanism(each.mechanism), "iterations": each.iterations}
                    for each in one.credential_infos
                ],
            }
            for one in answer.results
        }
