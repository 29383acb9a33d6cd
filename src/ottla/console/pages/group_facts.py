"""What only a look at records, settings and quotas tells about a group, beside the samples: the facts of `why`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.admin.transactions import describe_producers
from ottla.admin.users import describe_quotas
from ottla.console.pages.topic import topic_settings
from ottla.console.reader import records as reading
from ottla.console.reader.decode import show
from ottla.console.render import size
from ottla.console.sampler.why import Facts, Next, hot_partitions, span
from ottla.console.security.roles import READ
from ottla.errors import ApiException

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.admin.cluster import Cluster
    from ottla.admin.groups import Group
    from ottla.admin.partitions import Partition
    from ottla.console.reader.records import Seen
    from ottla.console.sampler.state import GroupState
    from ottla.console.web import View

_logger = logging.getLogger(__name__)

_LOOKED_AT: Final = 24
"""Partitions of a group whose next record is looked at: those with the greatest lag."""
_KEYS_OF: Final = 1_000
"""Newest records of a hot partition whose keys are counted ..."""
_KEYS_FOR_S: Final = 30.0
"""... and for how long the result holds: a page asks with every round of the sampler."""
_KEY_CHARS: Final = 60
_CACHED: Final = 10_000


async def look_closer(view: View, found: GroupState) -> Facts:
    """What the samples do not hold: members, retention, the next records, open transactions."""
    behind = sorted(
        (
            (known.ends[number] - offset, (topic, number))
            for (topic, number), offset in found.committed.items()
            if (known := view.state.topics.get(topic)) is not None
            and number < len(known.ends)
            and known.ends[number] > offset
        ),
        reverse=True,
    )[:_LOOKED_AT]
    watched = [partition for _, partition in behind]
    retention, next_records = await asyncio.gather(
        _retention(view, sorted({topic for topic, _ in watched})), _next_records(view, found, watched)
    )
    stable = {partition: fetched for partition, (fetched, _, _) in next_records.items()}
    held = [
        partition for partition, lso in stable.items() if 0 <= lso <= found.committed[partition] and lso >= 0
    ]
    facts = Facts(
        members=_members(found.described),
        retention_ms=retention,
        unread_since_ms={
            partition: seen.timestamp for partition, (_, seen, _) in next_records.items() if seen is not None
        },
        stable_ends={partition: lso for partition, lso in stable.items() if lso >= 0},
        open_since=await _holders(view, held) if held else {},
        records={
            partition: _in_words(seen) for partition, (_, seen, _) in next_records.items() if seen is not None
        },
        next_offsets={
            partition: ahead for partition, (_, _, ahead) in next_records.items() if ahead is not None
        },
        allowed_bytes_s=await _allowed(view, found.described) if behind else {},
        record_bytes={
            topic: known.size / known.records
            for topic in found.topics
            if (known := view.state.topics.get(topic)) is not None and known.records
        },
        leaderless=frozenset(
            (topic, number)
            for topic, number in found.committed
            if topic in view.state.topics and number in view.state.topics[topic].headless
        ),
        now_ms=int(time.time() * 1000),
    )
    hot = [each for each in hot_partitions(list(found.samples)) if view.may(READ, f"topic:{each[0]}")]
    if hot:
        keys = await asyncio.gather(*(_common_key(view, each) for each in hot))
        facts = replace(facts, common_keys={each: key for each, key in zip(hot, keys, strict=True) if key})
    return facts


async def _common_key(view: View, partition: Partition) -> str:
    """The commonest key of a partition's newest records, in words; empty if no key stands out or keys are masked."""
    known = view.cluster.common_keys.get(partition)
    if known is not None and time.monotonic() - known[0] < _KEYS_FOR_S:
        counted, total = known[1:]
    else:
        topic, number = partition
        try:
            found = await reading.newest(
                view.cluster.reader, topic, [number], _KEYS_OF, wanted=lambda seen: not seen.control
            )
        except ApiException as error:
            _logger.info("The keys of %s-%s are not counted: %s", topic, number, error.message)
            return ""
        counted, total = _commonest(found.records), len(found.records)
        view.cluster.common_keys[partition] = time.monotonic(), counted, total
    masks = view.console.masks.for_reader(partition[0], view.principal)
    if counted is None or any(("key",) in mask.paths for mask in masks):
        return ""
    seen, count = counted
    if seen.key is None:
        return f"{count:,} of its last {total:,} records have no key"
    key = show(seen.key).line[:_KEY_CHARS]
    return f'the commonest key in its last {total:,} records is "{key}" ({count / total:.0%})'


def _commonest(records: Sequence[Seen]) -> tuple[Seen, int] | None:
    """A record with the commonest key, and how often that is; None if every key is there once."""
    if not records:
        return None
    key, count = Counter(each.key for each in records).most_common(1)[0]
    return (next(each for each in records if each.key == key), count) if count > 1 else None


async def _allowed(view: View, described: Group | None) -> dict[str, float]:
    """How many bytes a second members may read by the quotas of their client ids, over all brokers that lead."""
    if described is None or not described.members:
        return {}
    try:
        quotas = await view.cluster.call(_reading_quotas)
    except ApiException as error:
        _logger.info("Quotas are not shown: %s", error.message)
        return {}
    allowed: dict[str, float] = {}
    names = _names(described)
    for member in described.members:
        quota = quotas.get(member.client_id, quotas.get(None))
        if quota is not None and member.assignment:
            # A quota holds on each broker.
            allowed[names[member.member_id]] = quota * len(_leaders(view, member.assignment))
    return allowed


def _reading_quotas(cluster: Cluster) -> dict[str | None, float]:
    """What client ids may read, by the id; None stands for all others."""
    return {
        each.entity["client-id"]: each.values["consumer_byte_rate"]
        for each in describe_quotas(cluster, {}, any_of=("client-id",))
        if "consumer_byte_rate" in each.values
    }


def _leaders(view: View, partitions: Iterable[Partition]) -> set[int]:
    topics = view.state.topics
    return {
        topics[topic].leaders[number]
        for topic, number in partitions
        if topic in topics and number < topics[topic].partitions
    }


def _names(described: Group) -> dict[str, str]:
    """By member id the name to show: the client id, unless two members share it."""
    names: dict[str, str] = {}
    for member in described.members:
        name = member.client_id or member.member_id
        names[member.member_id] = name if name not in names.values() else member.member_id
    return names


def _members(described: Group | None) -> dict[str, Sequence[Partition]]:
    if described is None:
        return {}
    names = _names(described)
    return {names[member.member_id]: member.assignment for member in described.members}


async def _retention(view: View, topics: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic in topics:
        try:
            entries = await view.cluster.call(topic_settings, topic)
        except ApiException as error:
            _logger.info("The settings of %s are not shown: %s", topic, error.message)
            continue
        values = {each.name: each.value or "" for each in entries}
        if "delete" in values.get("cleanup.policy", "delete"):
            found[topic] = int(values.get("retention.ms") or -1)
    return found


async def _next_records(
    view: View, found: GroupState, partitions: list[Partition]
) -> dict[Partition, tuple[int, Seen | None, Next | None]]:
    """For each partition its last stable offset, the record that the group reads next, and what stands ahead of it."""

    async def one(partition: Partition) -> tuple[int, Seen | None, Next | None]:
        place = partition, found.committed[partition]
        cached = view.cluster.next_records.get(place)
        if cached is not None and not cached[1].batch.is_transactional:
            return cached
        try:
            fetched, seen = await reading.read_at(
                view.cluster.reader, *partition, place[1], partition_bytes=64 << 10
            )
        except ApiException:
            return -1, None, None
        following = fetched.batches[-1].header.next_offset if fetched.batches else place[1]
        markers = sum(bool(each.control) for each in seen)
        broken = sum(each.last - max(each.first, place[1]) + 1 for each in fetched.broken)
        offsets = max(following - place[1], 0)
        ahead = Next(offsets, markers, max(offsets - len(seen) - broken, 0))
        record = next((each for each in seen if not each.control), None)
        if record is not None:
            if len(view.cluster.next_records) > _CACHED:
                view.cluster.next_records.clear()
            view.cluster.next_records[place] = fetched.stable, record, ahead
        return fetched.stable, record, ahead

    results = await asyncio.gather(*(one(partition) for partition in partitions))
    return dict(zip(partitions, results, strict=True))


async def _holders(view: View, partitions: list[Partition]) -> dict[Partition, str]:
    """Who keeps a transaction open on partitions, in words."""
    try:
        found = await view.cluster.call(describe_producers, partitions)
    except ApiException as error:
        _logger.info("Producers are not shown: %s", error.message)
        return {}
    words: dict[Partition, str] = {}
    for partition, producers in found.items():
        for each in producers:
            if each.current_txn_start_offset >= 0:
                since = span(time.time() - each.last_timestamp / 1000)
                words[partition] = (
                    f"producer {each.producer_id}, whose transaction is open for {since} or more"
                )
    return words


def _in_words(seen: Seen) -> str:
    value = seen.value
    if value is None:
        return ""
    if len(value) > 1 << 20:
        return f"The record there has {size(len(value))}."
    shown = show(value)
    if value[:1] in b"{[" and shown.kind != "json":
        return "The record there begins like JSON and is not valid."
    if seen.batch.is_transactional and seen.aborted:
        return "The record there belongs to an aborted transaction."
    return ""
