"""Sockets: listeners, connections, flow control and admission. What a request means is left to `ottla.api`."""
