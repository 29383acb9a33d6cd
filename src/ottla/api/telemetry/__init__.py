"""The telemetry APIs (KIP-714): what clients should send of their own metrics, and what they sent."""

from __future__ import annotations

from typing import Final

APIS: Final = ("get_telemetry_subscriptions", "push_telemetry")
"""The modules of this package, one for each API; the registry loads them."""
