"""DeleteShareGroupState (key 86), version 0.

The group coordinator deletes the state of share partitions.
"""

from __future__ import annotations

from ottla.api.share.state_requests import state_api
from ottla.coordinator.share.service import DELETE
from ottla.wire.apis import ApiKey

API = state_api(ApiKey.DELETE_SHARE_GROUP_STATE, DELETE)
