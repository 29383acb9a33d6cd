"""The admin APIs: topics, partitions, configs, features and brokers. The controller decides; these speak."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
    unregister_broker,
    update_features,
)

APIS: tuple[Api, ...] = (
    create_topics.API,
    delete_topics.API,
    create_partitions.API,
    describe_configs.API,
    alter_configs.API,
    incremental_alter_configs.API,
    list_config_resources.API,
    update_features.API,
    unregister_broker.API,
)
