"""The objects of Spark's JVM that PySpark has no methods for, reached by py4j."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.streaming import StreamingContext


class JavaObject(Protocol):
    """An object, class or package of the JVM: every member is one too, and numbers and strings arrive as Python's."""

    def __getattr__(self, name: str) -> JavaObject: ...

    def __call__(self, *arguments: object) -> JavaObject:
        """Calls a method or a constructor."""

    def __index__(self) -> int: ...

    def __truediv__(self, other: float) -> float: ...


def jvm_of(session: SparkSession) -> JavaObject:
    """The root of all packages."""
    return cast("JavaObject", session._jvm)


def jvm_root(context: SparkContext) -> JavaObject:
    """The root of all packages, by the SparkContext."""
    return cast("JavaObject", context._jvm)


def system_properties() -> JavaObject:
    """`java.lang.System` of this process's JVM, which starts if it does not run yet."""
    from pyspark.streaming import StreamingContext

    # As `getOrCreate` itself does: the JVM must be able to call Python.
    StreamingContext._ensure_initialized()
    from pyspark import SparkContext

    return cast("JavaObject", SparkContext._jvm).java.lang.System


def java_session(session: SparkSession) -> JavaObject:
    """The JVM's SparkSession."""
    return cast("JavaObject", session._jsparkSession)


def java_context(context: SparkContext) -> JavaObject:
    """The JVM's SparkContext."""
    return cast("JavaObject", context._jsc).sc()


def gateway_of(context: SparkContext) -> object:
    """The connection to the JVM; another one means another JVM."""
    return context._gateway


def java_column(column: Column) -> JavaObject:
    """The JVM's Column."""
    return cast("JavaObject", cast("object", column))._jc


def java_query(query: StreamingQuery) -> JavaObject:
    """The JVM's StreamingQuery."""
    return cast("JavaObject", query._jsq)


def java_streaming(context: StreamingContext) -> JavaObject:
    """The JVM's StreamingContext of DStreams."""
    return cast("JavaObject", context._jssc).ssc()
