"""Resources and new topics as arguments of the admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.admin.topics import NewPartitions, NewTopic
from ottla.wire.enums import AlterConfigOp, ConfigResourceType

__all__ = ["ConfigResource", "NewPartitions", "NewTopic"]

ConfigValue = str | int | float | bool | None


@dataclass(slots=True)
class ConfigResource:
    """A resource and its keys: names to look up, values to set, or tuples of an AlterConfigOp and a value.

    >>> from ottla import ConfigResource
    >>> ConfigResource("topic", "orders", {"retention.ms": 60_000}).resource_type.name
    'TOPIC'
    """

    resource_type: ConfigResourceType | str
    name: str
    configs: (
        Mapping[str, ConfigValue | tuple[AlterConfigOp | int | str, ConfigValue]] | Iterable[str] | None
    ) = field(default=None)

    def __post_init__(self) -> None:
        self.name = str(self.name)
        self.resource_type = self.kind

    @property
    def kind(self) -> ConfigResourceType:
        """The resource's type, also if it was given by its name.

        >>> ConfigResource("broker", "1").kind.name
        'BROKER'
        """
        given = self.resource_type
        if isinstance(given, ConfigResourceType):
            return given
        return ConfigResourceType[str(given).upper()]
