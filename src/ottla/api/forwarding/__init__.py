"""The way from a broker to the active controller: its own questions, and requests of clients that it passes on."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.forwarding import envelope

APIS: tuple[Api, ...] = (envelope.API,)
