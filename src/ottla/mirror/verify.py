"""Whether a mirror's target is what it should be: topics, settings, access, records, and where groups go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.admin.acls import Pattern, describe_acls
from ottla.admin.cluster import Cluster
from ottla.admin.configs import describe_configs
from ottla.errors import ApiException, ErrorCode
from ottla.mirror.acls import target_acls
from ottla.mirror.comparing import (
    Comparison,
    compare_all,
    compare_sample,
    next_record,
    require_notes,
    same_record,
)
from ottla.mirror.config import FlowConfig
from ottla.mirror.earlier import EarlierRuns
from ottla.mirror.groups import Copy, group_positions
from ottla.mirror.looking import copies_of
from ottla.mirror.topics import MirroredTopic, mirrored_topics, source_configs
from ottla.pipeline.fetching import LATEST, READ_COMMITTED, list_offsets
from ottla.pipeline.writer import Place
from ottla.wire.enums import ConfigResourceType, ConfigSource, PatternType, ResourceType


@dataclass(slots=True)
class Verification:
    """What was compared, and a sentence for each difference."""

    flow: str
    topics: int = 0
    partitions: int = 0
    copied: int = 0
    """Offsets of the source that are copied."""
    lag: int = 0
    configs: int = 0
    acls: int = 0
    groups: int = 0
    positions: int = 0
    compared: int = 0
    """Records that were read at both sides."""
    differences: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.flow}: {self.topics} topics, {self.partitions} partitions, {self.copied:,} offsets copied, "
            f"{self.lag:,} to go"
        )
        yield f"  {self.configs} settings and {self.acls} access rules compared"
        yield f"  {self.groups} groups: the next record of {self.positions} positions compared"
        yield f"  {self.compared:,} records compared"
        for sentence in self.differences:
            yield f"  differs: {sentence}"
        yield f"  {len(self.differences)} differences"


def verify_flow(flow: FlowConfig, *, full: bool = False, sample: int = 0) -> Verification:
    """Compare both sides of a flow. With `full` every record, with `sample` so many of each partition."""
    source, target = Cluster(flow.source_settings), Cluster(flow.target_settings)
    found = Verification(flow.name)
    try:
        require_notes(flow, target)
        topics = mirrored_topics(flow, source)
        copies = copies_of(flow, source, target)
        _topics(found, target, topics)
        _copied(found, source, topics, copies)
        copies = {place: copy for place, copy in copies.items() if copy.stopped is None}
        settings = source_configs(flow, source, topics)
        _configs(found, flow, target, topics, settings)
        _acls(found, flow, (source, target), set(topics))
        _groups(found, flow, (source, target), copies)
        compacting = {name for name, keys in settings.items() if "compact" in keys.get("cleanup.policy", "")}
        for place, copy in sorted(copies.items()):
            compacts = place.topic in compacting
            if full:
                _records(found, compare_all((source, target), place, copy, compacts=compacts))
            elif sample:
                _records(found, compare_sample((source, target), place, copy, sample, compacts=compacts))
    finally:
        source.close()
        target.close()
    return found


def _topics(found: Verification, target: Cluster, topics: Mapping[str, MirroredTopic]) -> None:
    there = {topic.name or "": len(topic.partitions) for topic in target.metadata(None).topics}
    found.topics = len(topics)
    for topic in topics.values():
        found.partitions += topic.partitions
        count = there.get(topic.remote)
        if count is None:
            found.differences.append(f"topic {topic.remote} is missing at the target")
        elif count != topic.partitions:
            found.differences.append(f"topic {topic.remote} has {count} partitions, not {topic.partitions}")


def _copied(
    found: Verification, source: Cluster, topics: Mapping[str, MirroredTopic], copies: Mapping[Place, Copy]
) -> None:
    places = [Place(one.name, number) for one in topics.values() for number in range(one.partitions)]
    ends = list_offsets(source, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
    for place in places:
        copy = copies.get(place)
        if copy is None:
            found.differences.append(f"{place.topic}-{place.partition} is not copied")
            continue
        if copy.stopped is not None:
            found.differences.append(copy.stopped)
            continue
        first = next(iter(copy.runs), None)
        found.copied += copy.upstream - (copy.upstream if first is None else first.upstream)
        found.lag += max(0, ends[place] - copy.upstream)


def _configs(
    found: Verification,
    flow: FlowConfig,
    target: Cluster,
    topics: Mapping[str, MirroredTopic],
    settings: Mapping[str, Mapping[str, str]],
) -> None:
    """Settings that the source has and the copy lacks, and those that only the copy has."""
    missing = {sentence.split()[1] for sentence in found.differences if sentence.endswith("at the target")}
    there = [topic for topic in topics.values() if topic.remote not in missing]
    mirrored = flow.config_filter()
    now = describe_configs(target, [(ConfigResourceType.TOPIC, topic.remote) for topic in there])
    for topic in there:
        entries = {entry.name: entry for entry in now[ConfigResourceType.TOPIC, topic.remote]}
        wanted = settings[topic.name]
        for key, value in wanted.items():
            if key not in entries:
                # A setting of an older release, which the target's brokers do not have.
                continue
            found.configs += 1
            own = entries[key].value
            if own != value:
                found.differences.append(f"{topic.remote} has {key}={own}, not {value}")
        for key, entry in entries.items():
            set_here = entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            if set_here and key in mirrored and key not in wanted:
                found.configs += 1
                found.differences.append(
                    f"{topic.remote} has {key}={entry.value}, which the source does not set"
                )


def _acls(found: Verification, flow: FlowConfig, sides: tuple[Cluster, Cluster], mirrored: set[str]) -> None:
    any_topic = Pattern(ResourceType.TOPIC, None, PatternType.ANY)
    try:
        wanted = target_acls(flow, describe_acls(sides[0], any_topic), mirrored)
        there = describe_acls(sides[1], any_topic)
    except ApiException as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        return
    for pattern, entry in wanted:
        found.acls += 1
        if entry not in there.get(pattern, []):
            found.differences.append(f"{entry.principal} lacks {entry.operation.name} on {pattern.name}")


def _groups(
    found: Verification, flow: FlowConfig, sides: tuple[Cluster, Cluster], copies: Mapping[Place, Copy]
) -> None:
    positions = group_positions(flow, sides[0], copies, earlier=EarlierRuns(*sides))
    found.groups = len({one.group for one in positions})
    for one in positions:
        place = f"group {one.group} in {one.place.topic}-{one.place.partition}"
        if one.downstream is None:
            found.differences.append(
                f"{place}: offset {one.upstream} was copied before the mirror's notes begin"
            )
            continue
        found.positions += 1
        copy = copies[one.place]
        mine = next_record(sides[0], one.place, one.upstream, copy.upstream)
        twin = next_record(sides[1], one.remote, one.downstream, copy.downstream)
        if (mine is None) != (twin is None) or (
            mine is not None and twin is not None and not same_record(mine, twin)
        ):
            found.differences.append(
                f"{place}: the next record at {one.upstream} is not that at {one.downstream}"
            )


def _records(found: Verification, comparison: Comparison) -> None:
    found.compared += comparison.equal
    if comparison.differences:
        more = f" ({comparison.differences} in all)" if comparison.differences > 1 else ""
        found.differences.append(comparison.first_difference + more)
