"""`ottla migrate`: move a cluster of Apache Kafka to Ottla node by node, without stopping it, and back."""
