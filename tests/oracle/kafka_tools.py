"""Apache Kafka's own programs as judges in tests."""

from __future__ import annotations

import atexit
import functools
from pathlib import Path

import pytest

from oracle.tools_oracle import JavaTools
from ottla.testing.apache import java_is_here

needs_java = pytest.mark.skipif(
    not java_is_here(), reason="needs a JVM and Maven to run Apache Kafka's own programs"
)

_COMPLAINTS = ("Exception", "Mismatches", "isvalid: false", "Could not", "Found invalid", "failed")


@functools.cache
def _jvm() -> JavaTools:
    """One for all tests of a process: a start costs more than most tools take."""
    tools = JavaTools()
    atexit.register(tools.close)
    return tools


def run_tool(main_class: str, *arguments: object, stdin: str = "", check: bool = True) -> str:
    """Run one of Kafka's programs to its end; what it printed comes back, first the complaints, then the answer."""
    code, out, err = _jvm().run(main_class, *arguments, stdin=stdin)
    if check and code != 0:
        raise AssertionError(f"{main_class} {arguments} ended with {code}:\n{err}{out}")
    return err + out


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
    said = run_tool("org.apache.kafka.tools.DumpLogSegments", *options)
    for complaint in _COMPLAINTS:
        assert complaint not in said, said
    return said
