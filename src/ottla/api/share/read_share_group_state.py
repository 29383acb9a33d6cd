"""ReadShareGroupState (key 84), version 0.

The leader of a partition reads the state of its share partition.
"""

from __future__ import annotations

from ottla.api.share.state_requests import state_api
from ottla.coordinator.share.service import READ
from ottla.wire.apis import ApiKey

API = state_api(ApiKey.READ_SHARE_GROUP_STATE, READ)
