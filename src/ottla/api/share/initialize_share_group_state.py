"""InitializeShareGroupState (key 83), version 0.

The group coordinator starts or restarts share partitions.
"""

from __future__ import annotations

from ottla.api.share.state_requests import state_api
from ottla.coordinator.share.service import INITIALIZE
from ottla.wire.apis import ApiKey

API = state_api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, INITIALIZE)
