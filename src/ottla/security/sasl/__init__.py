"""The server's side of SASL: one mechanism a file, and the exchange that carries their tokens."""
