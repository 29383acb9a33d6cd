"""The client of a telemetry request, as its connection and its header name it."""

from __future__ import annotations

from ottla.api.base import RequestContext
from ottla.broker.client_telemetry import Client


def client_of(ctx: RequestContext, instance_id: bytes) -> Client:
    """The client instance that sent a request."""
    name, version = ctx.client_software
    # The connection's id ends with the address of the client and a number.
    _, _, port = ctx.connection_id.rpartition("-")[0].rpartition(":")
    return Client(instance_id, ctx.client_id or "", name, version, ctx.client_host, port, ctx.principal)
