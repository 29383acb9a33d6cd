"""Debezium's own engine, for databases whose logs Ottla does not read itself."""
