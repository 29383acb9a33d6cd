"""The topology as a pure graph: what Kafka Streams would build, with its names, and how to show it."""
