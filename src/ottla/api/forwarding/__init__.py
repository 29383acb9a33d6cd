"""The way from a broker to the active controller: its own questions, and requests of clients that it passes on."""

from __future__ import annotations

from typing import Final

APIS: Final = ("envelope",)
"""The files of this area, each called as its API is; the registry loads them."""
