"""The registry's errors: an HTTP status, Confluent's number, and a sentence."""

from __future__ import annotations


class RegistryError(Exception):
    """An answer that is an error. `code` is Confluent's number, which clients compare."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class InvalidSchema(Exception):
    """A text is not a schema of its format, or exceeds a limit. The message says where."""


class CompilerFailed(InvalidSchema):
    """protoc did not answer, which may be the machine's fault: the schema is not known to be invalid."""


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> RegistryError:
    text = "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    return RegistryError(404, 40403, text)


def invalid_schema(reason: object) -> RegistryError:
    return RegistryError(422, 42201, f"Invalid schema: {reason}")


def invalid_version(version: object) -> RegistryError:
    return RegistryError(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1]"
        ' and the string "latest"',
    )


def not_permitted(message: str) -> RegistryError:
    return RegistryError(422, 42205, message)


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(
        422,
        42208,
        f"The specified subject '{subject}' is not a valid: it is empty or has control characters.",
    )


def incompatible(subject: str, details: list[str]) -> RegistryError:
    listed = "; ".join(details)
    return RegistryError(
        409,
        409,
        "Schema being registered is incompatible with an earlier schema for subject"
        f' "{subject}", details: [{listed}]',
    )


def store_failed(reason: object) -> RegistryError:
    return RegistryError(500, 50001, f"Error in the backend data store - {reason}")


def timed_out(reason: object) -> RegistryError:
    return RegistryError(500, 50002, f"The operation timed out: {reason}")


def forwarding_failed(reason: object) -> RegistryError:
    return RegistryError(500, 50003, f"Error while forwarding the request to the leader: {reason}")


def no_leader() -> RegistryError:
    return RegistryError(500, 50004, "The registry has no leader at the moment. Try again in a few seconds.")
