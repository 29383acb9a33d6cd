"""The errors of Connect. `java_class` is the name that Kafka Connect gives the same failure, for dead letters."""

from __future__ import annotations

from typing import ClassVar


class ConnectError(Exception):
    """Something went wrong that the operator or the author of a configuration can correct."""

    java_class: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"


class DataError(ConnectError):
    """A value does not fit its schema, or a schema does not fit what was asked of it."""

    java_class = "org.apache.kafka.connect.errors.DataException"


class SchemaError(DataError):
    """A schema contradicts itself."""

    java_class = "org.apache.kafka.connect.errors.SchemaBuilderException"


class ConfigInvalid(ConnectError):
    """A configuration has errors; the text names each key."""

    java_class = "org.apache.kafka.common.config.ConfigException"


class TaskFailed(ConnectError):
    """A failure that does not pass by itself: the connector stops, and its status says why."""


class Retriable(ConnectError):
    """A failure that passes by itself: the cycle runs again after a pause."""

    java_class = "org.apache.kafka.connect.errors.RetriableException"


class Occupied(Retriable):
    """Another run of the same connector holds what is needed, and will give it back: tried again soon."""


class NotFound(ConnectError):
    """There is no connector, task, plugin or logger of that name."""

    java_class = "org.apache.kafka.connect.errors.NotFoundException"


class BadRequest(ConnectError):
    """A request that cannot be served as it is."""

    java_class = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException"


class AlreadyExists(ConnectError):
    """A connector of that name exists."""

    java_class = "org.apache.kafka.connect.errors.AlreadyExistsException"


class NotByColumns(Exception):
    """Records side by side cannot be taken as a whole: they are taken one by one. It never leaves the framework."""
