"""Counts words: `ottla streams run examples/word_count.py --application-id wordcount --create-topics`."""

from ottla.streams import StreamsBuilder

b = StreamsBuilder()
(
    b.stream("lines")
    .flat_map_values(lambda line: line.lower().split())
    .group_by(lambda _, word: word)
    .count()
    .to_stream()
    .to("word-counts")
)
