"""The registry's HTTP side: routes, authentication, and forwarding of writes to the leader."""
