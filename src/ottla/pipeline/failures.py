"""The errors of a pipeline; their texts say what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """Something that the user can correct; the text says what and how."""


class JavaMissing(PipelineError):
    """No Java was found that Spark can run on."""


class JarsMissing(PipelineError):
    """The connector's jars are not in the cache and cannot be fetched."""


class SinkFenced(PipelineError):
    """Another driver has taken over the transactional id: this one must stop."""


class TaskRetried(PipelineError):
    """A task was started a second time within one transaction, where it must not write."""
