"""The words of Kafka Streams: streams, tables, groups, windows and joins, each adding nodes to one topology."""
