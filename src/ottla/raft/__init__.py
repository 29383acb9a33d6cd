"""KRaft: the replicated metadata log, its elections and its snapshots. Records are opaque here."""
