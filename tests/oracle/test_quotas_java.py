"""Kafka's own Rate and TokenBucket are the judges of ours: thousands of histories, drawn at random."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from oracle.kafka_tools import needs_java
from ottla.security.quotas.bucket import TokenBucket
from ottla.security.quotas.rate import Measure
from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_PROGRAM = Path(__file__).parent / "java" / "QuotaOracle.java"
_CASES = 2_000
_START_MS = 1_700_000_000_000


class Case(NamedTuple):
    kind: str
    samples: int
    window_ms: int
    limit: float
    events: list[tuple[int, float]]

    def question(self) -> str:
        words = [self.kind, str(self.samples), str(self.window_ms), repr(self.limit)]
        return " ".join([*words, *(f"{at} {value!r}" for at, value in self.events)])

    def ours(self) -> list[float]:
        found: list[float] = []
        if self.kind == "rate":
            rate = Measure(self.samples, self.window_ms, self.limit, self.events[0][0])
            for at, value in self.events:
                throttle_ms = rate.charge(value, at)
                found += [rate.measure(at), throttle_ms]
        else:
            bucket = TokenBucket(self.samples, self.window_ms, self.limit)
            for at, value in self.events:
                bucket.take(value, at)
                found += [bucket.tokens(at), bucket.throttle_ms(at)]
        return found


def draw(rng: random.Random) -> Case:
    window_ms = rng.choice([1, 10, 1000, 1000, 5000])
    limit = rng.choice([0.5, 1.0, 7.0, 1000.0, 12345.0])
    at, events = _START_MS, []
    for _ in range(rng.randrange(1, 60)):
        at += rng.choice([0, 0, 1, rng.randrange(2 * window_ms + 1), rng.randrange(20 * window_ms + 1)])
        events.append((at, rng.choice([0.0, 1.0, -1.0, round(rng.uniform(0, 20 * limit), 3)])))
    return Case(rng.choice(["rate", "bucket"]), rng.randrange(1, 13), window_ms, limit, events)


def test_rates_and_buckets_are_kafkas() -> None:
    rng = random.Random(16)
    cases = [draw(rng) for _ in range(_CASES)]
    run = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", kafka_classpath(), str(_PROGRAM)],
        input="".join(case.question() + "\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answers = run.stdout.splitlines()
    assert len(answers) == _CASES
    for case, answer in zip(cases, answers, strict=True):
        assert case.ours() == pytest.approx([float(word) for word in answer.split()], rel=1e-9, abs=1e-6), (
            case
        )
