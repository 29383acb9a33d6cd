"""Rates and token buckets on a clock that moves by hand, and who shares which quota."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_QUOTA_MEASURES
from ottla.security.quotas.bucket import TokenBucket
from ottla.security.quotas.entities import QuotaLimits, ip_rates
from ottla.security.quotas.ips import IpQuotas
from ottla.security.quotas.managers import IDLE_MS, ClientMeasures, ClientQuotas, MutationQuota
from ottla.security.quotas.rate import Measure, Rate

KEY = "producer_byte_rate"


def test_the_first_bytes_of_a_client_count_over_ten_windows() -> None:
    rate = Rate(11, 1000, 5000)
    rate.record(10_000, 5000)
    assert rate.measure(5000) == 1000
    assert rate.throttle_ms(1000, 5000) == 0
    rate.record(500, 5000)
    assert rate.throttle_ms(1000, 5000) == 500


def test_what_was_taken_back_does_not_count() -> None:
    rate = Rate(11, 1000, 0)
    rate.record(20_000, 10)
    rate.record(-20_000, 10)
    assert rate.measure(10) == 0


def test_the_average_wait_is_of_the_last_windows_and_of_the_measure_that_asks_for_it() -> None:
    client = ClientMeasures("app")
    client.produce = Measure(11, 1000, 1000.0, 0)
    client.request = Measure(11, 1000, 50.0, 0)
    first = client.charge(client.produce, 12_000, 0.0, 1.0)
    second = client.charge(client.produce, 1_000, 0.0, 1.5)
    assert 0 < first < second
    assert client.produce.average_wait_ms(2_000) == (first + second) / 2
    assert client.request.average_wait_ms(2_000) == 0.0
    assert client.produce.average_wait_ms(13_000) == 0.0
    assert client.charge(None, 0, 8.0, 20.0) > 0
    assert client.request.average_wait_ms(20_000) > 0


def test_events_leave_the_rate_with_their_window() -> None:
    rate = Rate(3, 1000, 0)
    rate.record(300, 0)
    assert rate.measure(2999) == pytest.approx(100.03, abs=0.01)
    assert rate.measure(3000) == 0


@pytest.mark.parametrize("limit", [100, 1_000, 1_000_000])
def test_a_client_that_waits_as_long_as_it_is_said_stays_within_its_limit(limit: int) -> None:
    rate, now_ms, sent = Rate(11, 1000, 0), 0, 0
    size = limit // 100
    # At first what ten windows allow may be used at once: the burst is paid back before it is measured.
    measured_from_ms = 22_000
    while now_ms < measured_from_ms + 33_000:
        rate.record(size, now_ms)
        if now_ms >= measured_from_ms:
            sent += size
        now_ms += max(rate.throttle_ms(limit, now_ms), 1)
    assert sent == pytest.approx(limit * (now_ms - measured_from_ms) / 1000, rel=0.05)


def test_a_bucket_is_full_at_first_goes_below_zero_once_and_is_paid_back() -> None:
    bucket = TokenBucket(11, 1000, 2.0)
    assert bucket.tokens(1_000_000) == 22
    bucket.take(30, 1_000_000)
    assert bucket.throttle_ms(1_000_000) == 4000
    assert bucket.throttle_ms(1_003_999) == 1
    assert bucket.throttle_ms(1_004_000) == 0
    assert bucket.tokens(9_000_000) == 22


def test_a_strict_mutation_quota_refuses_while_there_is_a_debt() -> None:
    bucket = TokenBucket(1, 1000, 1.0)
    quota = MutationQuota(bucket, strict=True)
    quota.record(3, 1000)
    assert quota.throttle_ms(1000) == 0
    with pytest.raises(ApiException) as refused:
        quota.record(1, 1000)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.throttle_ms(1000) == 2000
    assert quota.throttle_ms(2500) == 500
    MutationQuota(bucket, strict=True).record(1, 3000)


def test_a_permissive_mutation_quota_does_all_of_it_and_then_waits() -> None:
    quota = MutationQuota(TokenBucket(1, 1000, 1.0), strict=False)
    quota.record(3, 1000)
    assert quota.throttle_ms(1000) == 2000


LEVELS = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]
"""From the most specific to the least, each with those who share its measure."""


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_counts(first: int) -> None:
    quotas = {entity: {KEY: float(at + 1)} for at, (entity, _) in enumerate(LEVELS) if at >= first}
    found = QuotaLimits(quotas, KEY).find("u", "c")
    assert found == (first + 1, LEVELS[first][1])


def test_other_keys_and_other_clients_have_no_quota() -> None:
    limits = QuotaLimits({(("user", "u"),): {KEY: 5.0}}, KEY)
    assert limits.find("v", "c") is None
    assert not QuotaLimits({(("user", "u"),): {KEY: 5.0}}, "consumer_byte_rate")
    assert not QuotaLimits({(("ip", "10.0.0.1"),): {KEY: 5.0}}, KEY)


def test_clients_of_one_user_share_its_measure_and_a_new_limit_keeps_it() -> None:
    quotas = ClientQuotas()
    assert not quotas.enabled
    quotas.update({(("user", "u"),): {KEY: 100.0}})
    assert quotas.enabled
    one, other = quotas.measures("User:u", "a", 0), quotas.measures("User:u", "b", 0)
    assert one.produce is other.produce is not None
    assert one.fetch is one.request is one.mutation is None
    assert one.produce.charge(2000, 0) == 10_000
    quotas.update({(("user", "u"),): {KEY: 200.0}})
    later = quotas.measures("User:u", "a", 0).produce
    assert later is one.produce and later.charge(0, 0) == 0
    quotas.update({})
    assert not quotas.enabled and quotas.measures("User:u", "a", 0).produce is None


def test_client_ids_are_the_clients_choice_so_their_measures_are_bounded() -> None:
    quotas = ClientQuotas()
    quotas.update({(("client-id", None), ("user", None)): {KEY: 100.0}})
    for number in range(MAX_QUOTA_MEASURES + 5_000):
        quotas.measures("User:u", str(number), number / 1000)
    assert len(quotas) <= MAX_QUOTA_MEASURES
    last = MAX_QUOTA_MEASURES + 4_999
    latest = quotas.measures("User:u", str(last), last / 1000).produce
    assert quotas.measures("User:u", "another", (last + IDLE_MS + 1) / 1000).produce is not latest
    assert len(quotas) == 1


def test_a_connection_above_its_rate_is_held_for_at_most_a_window_and_does_not_count() -> None:
    quotas = IpQuotas(11, 1000)
    quotas.update({"10.0.0.1": 1.0}, None)
    assert quotas.enabled
    assert [quotas.throttle_ms("10.0.0.1", 0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert [quotas.throttle_ms("10.0.0.2", 0) for _ in range(50)] == [0] * 50
    quotas.update({}, 0.5)
    assert [quotas.throttle_ms("10.0.0.2", 0) for _ in range(6)] == [0] * 5 + [1000]


def test_the_rates_of_addresses_are_found_with_their_default() -> None:
    rate = {"connection_creation_rate": 3.0}
    assert ip_rates({(("ip", "10.0.0.1"),): rate, (("ip", None),): rate, (("user", "u"),): {KEY: 1.0}}) == {
        "10.0.0.1": 3.0,
        None: 3.0,
    }


def test_measures_that_a_connection_keeps_are_in_force_until_the_quotas_change_or_they_were_idle() -> None:
    quotas = ClientQuotas()
    quotas.update({(("user", "u"),): {KEY: 100.0}})
    kept = quotas.measures("User:u", None, 0)
    assert kept.in_force and kept.client_id is None
    quotas.update({(("user", "u"),): {KEY: 200.0}})
    assert not kept.in_force
    kept, used = quotas.measures("User:u", None, 0), quotas.measures("User:u", "a", 0)
    assert kept.in_force and used.in_force
    used.used_s = IDLE_MS / 1000
    quotas.measures("User:u", "b", IDLE_MS / 1000)
    assert used.in_force and not kept.in_force


@pytest.mark.parametrize("seed", range(20))
def test_a_request_is_charged_as_each_of_its_measures_would_be_by_itself(seed: int) -> None:
    """`tests/oracle/test_quotas_java.py` compares a measure with Kafka's own."""
    draw = random.Random(seed)
    client = ClientMeasures("a")
    client.produce, client.request = Measure(11, 1000, 5000.0, 0), Measure(11, 1000, 40.0, 0)
    produce, request = Measure(11, 1000, 5000.0, 0), Measure(11, 1000, 40.0, 0)
    now = 0.0
    waits: set[bool] = set()
    for _ in range(300):
        now += draw.choice([0.0, 0.001, 0.3, 1.0, 2.5, 12.0])
        size, spent_s = draw.choice([0, 10, 3000, 20_000]), draw.choice([0.0, 0.01, 0.5])
        throttle_ms = client.charge(client.produce, size, spent_s, now)
        by_bytes = produce.charge(size, now * 1000) if size else 0
        by_time = min(request.charge(spent_s * 100, now * 1000), 1000)
        assert throttle_ms == max(by_bytes, by_time)
        waits.add(throttle_ms > 0)
    assert waits == {True, False}
