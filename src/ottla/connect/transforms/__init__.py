"""Kafka's transforms and predicates, record by record. `chain.py` applies them in order."""
