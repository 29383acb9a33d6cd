"""WriteShareGroupState (key 85), versions 0-1.

The leader of a partition writes changes of its share partition.

1 adds how many records after the start offset have reached a final state.
"""

from __future__ import annotations

from ottla.api.share.state_requests import state_api
from ottla.coordinator.share.service import WRITE
from ottla.wire.apis import ApiKey

API = state_api(ApiKey.WRITE_SHARE_GROUP_STATE, WRITE)
