"""Forwarding of requests from a broker to the active controller: its own, and those of clients in envelopes."""

from __future__ import annotations

from typing import Final

APIS: Final = ("envelope",)
"""The modules of this package, one for each API; the registry loads them."""
