"""What can be wrong with a pipeline, as sentences for the person who runs it."""

from __future__ import annotations


class PipelineError(Exception):
    """Something that the user can put right; the text says what and how."""


class JavaMissing(PipelineError):
    """There is no Java that Spark can run on."""


class JarsMissing(PipelineError):
    """The connector's jars are neither here nor to be had."""


class SinkFenced(PipelineError):
    """Another driver has taken over the transactional id: this one must stop."""


class TaskRetried(PipelineError):
    """A task was started a second time within one transaction, where it must not write."""
