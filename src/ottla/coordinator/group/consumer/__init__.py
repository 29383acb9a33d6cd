"""Consumer groups of the next-generation protocol (KIP-848)."""
