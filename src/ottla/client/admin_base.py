"""What all parts of the admin client share: the cluster client, its errors as exceptions of this API, and topics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ottla.admin.connection import ConnectionFailed
from ottla.client.errors import KafkaConnectionError, for_code
from ottla.client.plain_data import Document, to_dict
from ottla.client.structs import TopicPartition
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.client.settings import Settings
    from ottla.wire.classes import WireResponse

Parameters = ParamSpec("Parameters")
T = TypeVar("T")

Partitions = Mapping[str, Iterable[int]] | Iterable[str] | None
"""Partitions by topic, names of topics, or None for everything."""


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """Turns errors of the cluster client into exceptions of this API."""
    try:
        yield
    except ConnectionFailed as error:
        raise KafkaConnectionError(error.message) from None
    except ApiException as error:
        raise for_code(error.code)(error.message) from None


class AdminBase:
    """The cluster that an admin client works on."""

    config: Settings
    _cluster: Cluster

    def _run(
        self,
        function: Callable[Concatenate[Cluster, Parameters], T],
        /,
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> T:
        """Call a function of `ottla.admin`; its errors become exceptions of this API."""
        with client_errors():
            return function(self._cluster, *args, **named)

    def _version(self, response: WireResponse, broker_id: int | None = None) -> int:
        with client_errors():
            return self._cluster.connection(broker_id).agreed_version(response.API_KEY)

    def _to_dict(self, response: WireResponse, broker_id: int | None = None) -> Document:
        """A response as plain data, without the time that the broker has throttled the client."""
        document = to_dict(response, self._version(response, broker_id))
        document.pop("throttle_time_ms", None)
        return document

    def _broker_ids(self) -> list[int]:
        with client_errors():
            self._cluster.refresh()
            return sorted(self._cluster.nodes())

    def _timeout_ms(self, given: float | None) -> int:
        return int(given or self.config["request_timeout_ms"])

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[Document]:
        """Topics with their partitions, leaders and replicas; all topics if none is named.

        >>> [topic] = admin.describe_topics(["orders"])
        >>> topic["name"], len(topic["partitions"])
        ('orders', 1)
        """
        with client_errors():
            response = self._cluster.metadata(topics, operations=True)
        described: list[Document] = self._to_dict(response)["topics"]
        return described

    def _partitions(self, given: Partitions) -> list[TopicPartition]:
        """The partitions that are meant; all partitions of a topic that is only named."""
        if isinstance(given, Mapping):
            return [TopicPartition(name, number) for name, numbers in given.items() for number in numbers]
        return [
            TopicPartition(topic["name"], one["partition_index"])
            for topic in self.describe_topics(None if given is None else list(given))
            for one in topic["partitions"]
        ]
