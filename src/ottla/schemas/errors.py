"""What can go wrong with schemas in a program, each as a class and a sentence."""

from __future__ import annotations


class SchemaError(ValueError):
    """The base of all errors of this package. `schema_id` is set where a record named one."""

    says_nothing_about_the_record = False

    def __init__(self, message: str, schema_id: int | None = None) -> None:
        super().__init__(message)
        self.schema_id = schema_id


class RegistryUnavailable(SchemaError):
    """No registry answers, so that a schema cannot be looked up."""

    says_nothing_about_the_record = True
    """The record may be sound: it is neither skipped nor a dead letter."""


class RegistryRefused(SchemaError):
    """The registry refuses a request. `code` is its error number."""

    def __init__(self, message: str, status: int, code: int) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class UnsupportedRules(SchemaError):
    """A schema has rules that would have to run with each record, which these serializers do not do."""

    says_nothing_about_the_record = True


class UnknownSchema(SchemaError):
    """The registry does not know a schema id, guid or subject."""


class IncompatibleSchema(SchemaError):
    """The registry refuses a schema as an incompatible change, or a reader's schema cannot read a writer's."""


class InvalidData(SchemaError):
    """A value does not fit its schema, or bytes are not what their schema says."""
