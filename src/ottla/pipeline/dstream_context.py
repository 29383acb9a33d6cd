"""The driver's side that all sources of DStreams share: ticks, the running context, and objects that survive a restart.

Spark pickles the functions of a stream into its checkpoint. A source that two outputs use is in two functions; when
they are read back, both must hold the same source again.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla.config.errors import ConfigError
from ottla.config.providers import Providers, has_reference
from ottla.credentials.secret_keys import holds_secret
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jvm import java_context, java_streaming, jvm_root

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.streaming import DStream, StreamingContext

    from ottla.pipeline.jvm import JavaObject

_ENVIRONMENT: Final = Providers(
    {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
)

E = TypeVar("E")

Settings = dict[str, str | int | float | bool]


def ticks(ssc: StreamingContext) -> DStream[object]:
    """A stream with one empty RDD for each batch. Unlike `queueStream`, it can be checkpointed."""
    from pyspark.streaming import DStream

    jvm = jvm_root(ssc.sparkContext)
    empty = ssc.sparkContext.emptyRDD()
    tag = jvm.scala.reflect.ClassTag.Any()
    stream = jvm.org.apache.spark.streaming.dstream.ConstantInputDStream(
        java_streaming(ssc), cast("JavaObject", empty._jrdd).rdd(), tag
    )
    java = jvm.org.apache.spark.streaming.api.java.JavaDStream(stream, tag)
    return DStream(java, ssc, empty._jrdd_deserializer)


def time_ms(time: datetime) -> int:
    """A batch's time as Spark counts it."""
    return round(time.timestamp() * 1000)


def running_context() -> JavaObject | None:
    """The JVM's StreamingContext that is running now; None before it runs and after.

    The JVM's own answer takes a lock that `start` holds while the batches of a checkpoint run again.
    """
    from pyspark.streaming import StreamingContext

    active = StreamingContext._activeContext
    return None if active is None else java_streaming(active)


def oldest_needed_ms(running: JavaObject, context: SparkContext, at_ms: int) -> int:
    """The time of the oldest batch that Spark may ask for, when it plans the batch of `at_ms`.

    Batches may wait in Spark's queue for any time. Each of them is computed from those that Spark remembers at its
    time. The margin is for a checkpoint that is older than the queue.
    """
    pending = running.scheduler().getPendingTimes()
    oldest_ms = at_ms
    if int(pending.size()):
        earlier = jvm_root(context).org.apache.spark.streaming.Time.ordering()
        oldest_ms = min(at_ms, int(pending.min(earlier).milliseconds()))
    return oldest_ms - 2 * int(running.graph().getMaxInputStreamRememberDuration().milliseconds())


def checked_for_checkpoint(settings: Settings) -> Settings:
    """The settings; raises if a checkpoint would hold a secret."""
    for key, value in settings.items():
        if holds_secret(key) and not has_reference(str(value), "env"):
            raise PipelineError(
                f"the checkpoint would hold {key}: give it as ${{env:NAME}}, and the value in the environment"
            )
    return settings


def resolved(settings: Settings) -> Settings:
    """The settings with `${env:NAME}` replaced, for a client; the result is never kept."""
    return {key: _resolve(key, value) if isinstance(value, str) else value for key, value in settings.items()}


def _resolve(key: str, value: str) -> str:
    try:
        return _ENVIRONMENT.resolve(key, value)
    except ConfigError as error:
        raise PipelineError(error.message) from None


class Restorable:
    """An object that is pickled into checkpoints by its `state` and is one object again after each restart."""

    def __init__(self) -> None:
        self.identity = uuid.uuid4().hex
        self.changed = False
        """It did something since it was made or restored."""

    def state(self) -> Mapping[str, object]:
        """The arguments of the constructor that make it again. They never change."""
        return {}

    def __reduce__(self) -> tuple[Callable[..., Restorable], tuple[object, ...]]:
        return _restore, (type(self), self.identity, dict(self.state()))


_restored: Final[weakref.WeakValueDictionary[str, Restorable]] = weakref.WeakValueDictionary()


def _restore(kind: type[Restorable], identity: str, state: Mapping[str, object]) -> Restorable:
    """All functions of one checkpoint are read before the first batch: they share the object until it has changed."""
    known = _restored.get(identity)
    if known is not None and not known.changed:
        return known
    made = cast("Callable[..., Restorable]", kind)(**state)
    made.identity = identity
    _restored[identity] = made
    return made


def _attach(tick: RDD[object]) -> None:
    """Give the RDD of `ticks` its SparkContext again.

    A checkpoint keeps the RDD without it, and Spark needs it when it forgets the batch (`spark.streaming.unpersist`).
    """
    java = cast("JavaObject", tick._jrdd).rdd()
    field = jvm_root(tick.context).java.lang.Class.forName("org.apache.spark.rdd.RDD").getDeclaredField("_sc")
    field.setAccessible(True)
    if field.get(java) is None:
        field.set(java, java_context(tick.context))


def read_with(
    tick: RDD[object],
    entries: Sequence[E],
    read: Callable[[Iterable[E]], Iterable[object]],
    most: int | None = None,
) -> RDD[object]:
    """An RDD of a batch: one partition for each entry, or at most so many with several each; a task reads each."""
    _attach(tick)
    count = len(entries) if most is None else min(len(entries), most)
    spread: RDD[E] = tick.context.parallelize(list(entries), max(1, count))
    return spread.mapPartitions(read)
