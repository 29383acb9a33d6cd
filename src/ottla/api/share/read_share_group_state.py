"""ReadShareGroupState (84): the leader of a partition asks what was kept of its share partition. 0 is all there is."""

from __future__ import annotations

from ottla.api.share.state_requests import state_api
from ottla.coordinator.share.service import READ
from ottla.wire.apis import ApiKey

API = state_api(ApiKey.READ_SHARE_GROUP_STATE, 0, READ)
