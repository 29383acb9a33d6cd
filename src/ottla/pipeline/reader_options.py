"""The options of `format("ottla")`: those of Spark's Kafka source, with its defaults and its refusals.

The one default of our own is `kafka.isolation.level`, which is read_committed. `columns` is an option of our own.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.admin.settings import ClusterSettings
from ottla.client.cluster_settings import is_java_security, writer_settings
from ottla.client.errors import KafkaConfigurationError
from ottla.client.settings import COMMON, RENAMED
from ottla.errors import ApiException
from ottla.pipeline.decoding import ALL_COLUMNS
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.fetching import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, FetchLimits
from ottla.pipeline.writer import Place

_logger = logging.getLogger(__name__)

FORMAT: Final = "ottla"
"""The name that Spark's `format` takes."""
FUSED_PREFIX: Final = "ottla-fused-"
"""Names of sources that read as `format("ottla")` does, and run a step of a query in the same task."""

_KAFKA: Final = "kafka."
_SERVERS: Final = "kafka.bootstrap.servers"
_STRATEGIES: Final = ("assign", "subscribe", "subscribepattern")
_REFUSED: Final = {
    "auto.offset.reset": "give the option startingOffsets instead",
    "key.deserializer": "keys are binary: use DataFrame operations to read them",
    "value.deserializer": "values are binary: use DataFrame operations to read them",
    "enable.auto.commit": "offsets are in Spark's checkpoint; `track_lag` or the sink commit them to a group too",
    "interceptor.classes": "it names Java classes",
}
_WITHOUT_EFFECT: Final = frozenset(
    {"groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"}
)
_ISOLATION: Final = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
_STALL_S: Final = 120.0

Positions = str | dict[Place, int]
"""`earliest`, `latest`, or an offset for each partition (-2 and -1 for the same two)."""


@dataclass(frozen=True, slots=True)
class At:
    """Where to start or to end: at positions, or at the first record of a time (in ms, one or for each partition)."""

    positions: Positions | None = None
    timestamp: int | None = None
    timestamps: dict[Place, int] | None = None


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What a reader has to know; it can be pickled, and its text shows no secret."""

    settings: ClusterSettings
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    places: tuple[Place, ...] = ()
    """Of `assign`."""
    start: At = field(default_factory=At)
    end: At = field(default_factory=At)
    latest_if_no_record: bool = False
    """startingOffsetsByTimestampStrategy=latest: where no record is as late as the time, begin at the end."""
    columns: tuple[str, ...] = ALL_COLUMNS[:-1]
    isolation: int = READ_COMMITTED
    limits: FetchLimits = field(default_factory=FetchLimits)
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_s: float = 900.0


def parse_options(options: Mapping[str, str], *, streaming: bool) -> ReaderOptions:
    """The options of a batch read or of a stream; PipelineError for what does not fit."""
    # Spark's options have no case; the names of Kafka's settings do.
    given = {key if key.lower().startswith(_KAFKA) else key.lower(): value for key, value in options.items()}
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        raise PipelineError(
            "give one of the options subscribe (topics), subscribePattern (a pattern of topics) and assign "
            f"(partitions); {'none' if not chosen else ' and '.join(chosen)} is given"
        )
    kafka = {key[len(_KAFKA) :]: value for key, value in given.items() if key.lower().startswith(_KAFKA)}
    if not kafka.get("bootstrap.servers"):
        raise PipelineError(f"the option {_SERVERS} is missing: the addresses of the brokers")
    _warn_of_unknown(given)
    settings, isolation, limits = _kafka_settings(kafka)
    topics, pattern, places = _subscription(given)
    start = _at(given, "starting") or At("latest" if streaming else "earliest")
    end = _at(given, "ending") or At("latest")
    _check_bounds(start, end, given, streaming)
    return ReaderOptions(
        settings=settings,
        topics=topics,
        pattern=pattern,
        places=places,
        start=start,
        end=end,
        latest_if_no_record=_one_of(given, "startingoffsetsbytimestampstrategy", ("error", "latest"), "error")
        == "latest",
        columns=_columns(given),
        isolation=isolation,
        limits=limits,
        fail_on_data_loss=_boolean(given, "failondataloss", True),
        min_partitions=_number(given, "minpartitions", 1) or 0,
        max_records_per_partition=_number(given, "maxrecordsperpartition", 1) or 0,
        max_offsets=_number(given, "maxoffsetspertrigger", 1),
        min_offsets=_number(given, "minoffsetspertrigger", 1),
        max_trigger_delay_s=_duration_s(given.get("maxtriggerdelay", "15m")),
    )


def is_ours(source_name: str) -> bool:
    """Whether a source of a query is this reader, alone or with a step."""
    return source_name == FORMAT or source_name.startswith(FUSED_PREFIX)


def column_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a frame gets."""
    return _columns({key.lower(): value for key, value in options.items()})


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = _boolean(given, "includeheaders", False)
    if "columns" not in given:
        return ALL_COLUMNS if with_headers else ALL_COLUMNS[:-1]
    wanted = tuple(name.strip() for name in given["columns"].split(","))
    unknown = [name for name in wanted if name not in ALL_COLUMNS]
    if unknown or len(set(wanted)) != len(wanted):
        raise PipelineError(
            f"the option columns has {', '.join(unknown or wanted)}: name some of {', '.join(ALL_COLUMNS)}, each once"
        )
    return wanted


def _subscription(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[Place, ...]]:
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(name.strip() for name in given["subscribe"].split(",") if name.strip()))
        if not topics:
            raise PipelineError("the option subscribe names no topic")
        return topics, None, ()
    if "subscribepattern" in given:
        try:
            re.compile(given["subscribepattern"])
        except re.error as error:
            raise PipelineError(f"the option subscribePattern is not a pattern: {error}") from None
        return (), given["subscribepattern"], ()
    example = '{"orders":[0,1]}'
    wrong = PipelineError(f"the option assign is not of the form {example}: {given['assign']}")
    try:
        named = json.loads(given["assign"])
        places = tuple(
            Place(str(topic), int(number)) for topic, numbers in named.items() for number in numbers
        )
    except (ValueError, TypeError, AttributeError):
        raise wrong from None
    if not places:
        raise wrong
    return (), None, places


def _at(given: Mapping[str, str], which: str) -> At | None:
    """`startingTimestamp` comes before `startingOffsetsByTimestamp`, and that before `startingOffsets`."""
    if f"{which}timestamp" in given:
        return At(timestamp=_number(given, f"{which}timestamp", 0))
    if f"{which}offsetsbytimestamp" in given:
        return At(timestamps=_per_partition(given, f"{which}offsetsbytimestamp", 0))
    text = given.get(f"{which}offsets")
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        return At(text.lower())
    return At(_per_partition(given, f"{which}offsets", EARLIEST))


def _per_partition(given: Mapping[str, str], name: str, least: int) -> dict[Place, int]:
    example = '{"orders":{"0":23,"1":-2}}'
    try:
        named = json.loads(given[name])
        found = {
            Place(str(topic), int(partition)): int(number)
            for topic, partitions in named.items()
            for partition, number in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise PipelineError(f"the option {name} is not of the form {example}: {given[name]}") from None
    for place, number in found.items():
        if number < least:
            raise PipelineError(f"the option {name} has {number} for {place.topic}-{place.partition}")
    return found


def _check_bounds(start: At, end: At, given: Mapping[str, str], streaming: bool) -> None:
    if streaming:
        for name in ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"):
            if name in given:
                raise PipelineError(f"the option {name} is for batch reads; a stream has no end")
        return
    first = set(start.positions.values()) if isinstance(start.positions, dict) else {start.positions}
    if LATEST in first or "latest" in first:
        raise PipelineError("startingOffsets of a batch read cannot be latest: it would read nothing")
    last = set(end.positions.values()) if isinstance(end.positions, dict) else {end.positions}
    if EARLIEST in last or "earliest" in last:
        raise PipelineError("endingOffsets cannot be earliest: the read would end before it begins")
    for name in ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"):
        if name in given:
            _logger.warning("the option %s has no effect on a batch read", name)


def _kafka_settings(kafka: Mapping[str, str]) -> tuple[ClusterSettings, int, FetchLimits]:
    for name, instead in _REFUSED.items():
        if name in kafka:
            raise PipelineError(f"the option kafka.{name} is not supported: {instead}")
    known = set(RENAMED.values()) | {name.replace("_", ".") for name in COMMON}
    connection = {
        name: value
        for name, value in kafka.items()
        if (name in known or is_java_security(name)) and name != "bootstrap.servers"
    }
    try:
        settings = writer_settings(kafka["bootstrap.servers"], connection | _numbers_of(connection))
        settings.security.tls_context()
        if settings.security.uses_sasl:
            settings.security.login()
    except (KafkaConfigurationError, ApiException, ValueError, OSError) as error:
        raise PipelineError(f"the options kafka.*: {error}") from None
    isolation = kafka.get("isolation.level", "read_committed")
    if isolation not in _ISOLATION:
        raise PipelineError(f"kafka.isolation.level is one of {', '.join(_ISOLATION)}, not {isolation}")
    ours = FetchLimits()
    limits = FetchLimits(
        max_bytes=_number(kafka, "fetch.max.bytes", 1) or ours.max_bytes,
        partition_max_bytes=_number(kafka, "max.partition.fetch.bytes", 1) or ours.partition_max_bytes,
        max_wait_ms=min(_number(kafka, "fetch.max.wait.ms", 0) or ours.max_wait_ms, ours.max_wait_ms),
        stall_s=_STALL_S,
    )
    return settings, _ISOLATION[isolation], limits


def _numbers_of(connection: Mapping[str, str]) -> dict[str, object]:
    """Spark's options are text, and the client's settings of time are numbers."""
    return {name: int(value) for name, value in connection.items() if name.endswith(".ms")}


def _warn_of_unknown(given: Mapping[str, str]) -> None:
    known = {
        *_STRATEGIES,
        *_WITHOUT_EFFECT,
        *(
            "startingoffsets",
            "startingoffsetsbytimestamp",
            "startingtimestamp",
            "startingoffsetsbytimestampstrategy",
        ),
        *("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "failondataloss", "includeheaders"),
        *("minpartitions", "maxrecordsperpartition", "columns"),
        *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
    }
    for name in given:
        if name not in known and not name.lower().startswith(_KAFKA):
            _logger.warning("the option %s is unknown and has no effect", name)


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    if name not in given:
        return None
    try:
        number = int(given[name])
    except ValueError:
        number = least - 1
    if number < least:
        raise PipelineError(f"the option {name} is a whole number of at least {least}, not {given[name]}")
    return number


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    return _one_of(given, name, ("true", "false"), str(default).lower()) == "true"


def _one_of(given: Mapping[str, str], name: str, words: Sequence[str], default: str) -> str:
    word = given.get(name, default).lower()
    if word not in words:
        raise PipelineError(f"the option {name} is one of {', '.join(words)}, not {given[name]}")
    return word


def _duration_s(text: str) -> float:
    """A time as Spark writes it: a number and ms, s, m or min, h, d; seconds without a unit."""
    units = {"ms": 0.001, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in units:
        raise PipelineError(f"the option maxTriggerDelay is a time like 15m, not {text}")
    return int(found[1]) * units[found[2]]
