"""One place that makes Spark sessions: Java, the connector's jars, and the settings that a pipeline wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(
    app_name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, made at the first call: one session serves many queries.

    `master` is Spark's (default: local, on all cores); `settings` are Spark's and win over ours.
    """
    raise AssertionError
