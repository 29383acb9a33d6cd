"""The topics that a Streams application creates for itself, recognized by their names."""

from __future__ import annotations

import re
from typing import Final

_ENDINGS: Final = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)


def is_internal(topic: str, application_id: str) -> bool:
    return topic.startswith(f"{application_id}-") and _ENDINGS.fullmatch(topic) is not None
