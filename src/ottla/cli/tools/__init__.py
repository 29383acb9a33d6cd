"""Kafka's command line tools, with Kafka's flags and output: one module per tool, imported when it is called."""
