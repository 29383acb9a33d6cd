"""The schema registry: Confluent's REST interface over Confluent's `_schemas` topic, as a process of its own."""
