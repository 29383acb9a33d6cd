"""Types for the identifiers that Kafka's schemas name: a group id is not a topic name, though both are strings.

They exist for the type checker only: at run time each is the plain `str` or `int` that it stands for.
"""

from __future__ import annotations

from typing import NewType

TopicName = NewType("TopicName", str)
GroupId = NewType("GroupId", str)
TransactionalId = NewType("TransactionalId", str)
ProducerId = NewType("ProducerId", int)
BrokerId = NewType("BrokerId", int)
