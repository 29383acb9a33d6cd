"""ReadShareGroupStateSummary (key 87), versions 0-1.

Reads the offsets and epochs of share partitions, without their batches.

1 adds how many records after the start offset have reached a final state.
"""

from __future__ import annotations

from ottla.api.share.state_requests import state_api
from ottla.coordinator.share.service import SUMMARY
from ottla.wire.apis import ApiKey

API = state_api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, SUMMARY)
