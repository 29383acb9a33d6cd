"""Kafka's command line tools in Kafka's words: one module per tool, imported when it is called."""
