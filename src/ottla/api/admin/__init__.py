"""The admin APIs: topics, partitions, configs, features and brokers. The controller makes the decisions."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "create_topics",
    "delete_topics",
    "create_partitions",
    "describe_configs",
    "alter_configs",
    "incremental_alter_configs",
    "list_config_resources",
    "update_features",
    "unregister_broker",
)
"""The modules of this package, one for each API; the registry loads them."""
