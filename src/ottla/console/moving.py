"""Where replicas go: the places of a move, what each broker holds before and after it, and how fast it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.admin.partitions import Partition
    from ottla.console.sampler.state import TopicState

Places = dict["Partition", list[int]]
LOOKS: Final = 30
"""So many looks at a move tell its pace."""


class NoRoom(Exception):
    """A partition that no other broker could take; the text names it."""


def spread_out(name: str, topic: TopicState, brokers: Sequence[int], factor: int) -> Places:
    """The partitions of a topic over brokers in turn, each replica on another one; those that are there stay out."""
    wanted = {}
    for number in range(topic.partitions):
        target = [brokers[(number + index) % len(brokers)] for index in range(factor)]
        if sorted(target) != sorted(topic.replicas[number]):
            wanted[name, number] = target
    return wanted


def emptied(
    topics: Mapping[str, TopicState], broker: int, targets: Sequence[int], racks: Mapping[int, str | None]
) -> Places:
    """Each replica of a broker on the target with the fewest, in a rack without another replica if there is one."""
    count = Counter(dict.fromkeys(targets, 0))
    for topic in topics.values():
        for replicas in topic.replicas:
            count.update(each for each in replicas if each in count)
    wanted = {}
    for name, topic in sorted(topics.items()):
        for number, replicas in enumerate(topic.replicas):
            if broker not in replicas:
                continue
            used = {racks.get(each) for each in replicas if each != broker}
            free = [each for each in targets if each not in replicas]
            if not free:
                raise NoRoom(f"{name}-{number}")
            chosen = min(free, key=lambda each: (racks.get(each) in used, count[each], each))
            count[chosen] += 1
            wanted[name, number] = [chosen if each == broker else each for each in replicas]
    return wanted


@dataclass(frozen=True, slots=True)
class Load:
    """What a broker holds."""

    replicas: int = 0
    first: int = 0
    """Partitions whose first replica it has: it should lead them."""
    size: int = 0


def loads(topics: Mapping[str, TopicState], wanted: Places, brokers: Iterable[int]) -> dict[int, Load]:
    """What each broker holds when the move is done; without a move, what it holds now."""
    replicas: Counter[int] = Counter()
    first: Counter[int] = Counter()
    size: Counter[int] = Counter()
    for name, topic in topics.items():
        for number, now in enumerate(topic.replicas):
            there = wanted.get((name, number), now)
            weight = max(topic.sizes[number], 0) if number < len(topic.sizes) else 0
            for each in there:
                replicas[each] += 1
                size[each] += weight
            if there:
                first[there[0]] += 1
    return {each: Load(replicas[each], first[each], size[each]) for each in sorted(brokers)}


def copied(topics: Mapping[str, TopicState], wanted: Places) -> int:
    """The bytes that go to brokers which do not have them yet."""
    total = 0
    for (name, number), target in wanted.items():
        topic = topics[name]
        weight = max(topic.sizes[number], 0) if number < len(topic.sizes) else 0
        total += weight * sum(each not in topic.replicas[number] for each in target)
    return total


def pace(looks: Sequence[tuple[float, int]], wanted: int) -> tuple[float, float] | None:
    """(bytes a second, seconds to go) of a move from (time, bytes there) of some looks; None if nothing moves."""
    if len(looks) < 2:
        return None
    (began_s, first), (now_s, last) = looks[0], looks[-1]
    if last <= first or now_s <= began_s:
        return None
    rate = (last - first) / (now_s - began_s)
    return rate, max(wanted - last, 0) / rate
