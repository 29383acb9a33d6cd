"""Sockets: listeners, connections, flow control and connection limits. `ottla.api` handles the requests."""
