"""Apache Kafka's own programs as judges in tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing.apache import java_is_here, run_java

needs_java = pytest.mark.skipif(
    not java_is_here(), reason="needs a JVM and Maven to run Apache Kafka's own programs"
)

_COMPLAINTS = ("Exception", "Mismatches", "isvalid: false", "Could not", "Found invalid", "failed")


def dump_log(
    *files: Path, cluster_metadata: bool = False, offsets: bool = False, index_check: bool = False
) -> str:
    """What Kafka's DumpLogSegments says of files; a complaint of it about any of them fails the test."""
    options: list[object] = ["--files", ",".join(map(str, files))]
    options.append("--index-sanity-check" if index_check else "--deep-iteration")
    if cluster_metadata:
        options.append("--cluster-metadata-decoder")
    if offsets:
        options.append("--offsets-decoder")
    said = run_java("org.apache.kafka.tools.DumpLogSegments", *options)
    for complaint in _COMPLAINTS:
        assert complaint not in said, said
    return said
