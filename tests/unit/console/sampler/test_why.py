"""Every rule of `why`, from samples of ten minutes on a clock that the test moves."""

from __future__ import annotations

from ottla.console.sampler.samples import GroupSample
from ottla.console.sampler.why import Facts, Next, explain, hot_partitions, span

ORDERS = [("orders", number) for number in range(3)]


def story(*moments, each_s=15.0, members=2, state="Stable"):
    """Samples from (committed, ends) of partitions, 15 seconds apart; a moment may override members and epoch."""
    found = []
    for index, moment in enumerate(moments):
        committed, ends, *more = moment
        options = more[0] if more else {}
        found.append(
            GroupSample(
                index * each_s,
                options.get("state", state),
                options.get("members", members),
                options.get("epoch", 1),
                dict(zip(ORDERS, committed, strict=False)),
                dict(zip(ORDERS, ends, strict=False)),
                dict(zip(ORDERS, options.get("starts", (0, 0, 0)), strict=False)),
                found[-1] if found else None,
            )
        )
    return found


def rules(samples, facts=None):
    return [each.rule for each in explain(samples, facts)]


def first(samples, facts=None):
    return explain(samples, facts)[0]


def test_a_group_that_has_read_everything_is_level():
    found = first(story(((10, 10, 10), (10, 10, 10)), ((20, 20, 20), (20, 20, 20))))
    assert (found.severity, found.sentence) == ("ok", "It has read everything.")


def test_a_small_lag_that_moves_is_no_trouble():
    assert first(story(((10,), (15,)), ((30,), (35,)))).sentence == "It keeps up: 5 records are on their way."


def test_empty_group_while_records_come_in():
    found = first(story(*(((10, 10, 10), (10 + 20 * n, 10, 10)) for n in range(1, 20)), members=0))
    assert (found.severity, found.rule) == ("bad", "empty")
    assert found.sentence == "Nobody reads: the group has been empty for at least 4 min."


def test_it_says_since_when_a_group_is_empty():
    moments = [((10,), (20,), {"members": 1}), *(((10,), (20,), {"members": 0}) for _ in range(5))]
    assert first(story(*moments)).sentence == "Nobody reads: the group has been empty for 1 min."


def test_a_pipeline_on_spark_commits_for_a_group_without_members():
    found = first(story(*(((10 * n,), (10 * n + 4,)) for n in range(1, 10)), members=0))
    assert found.sentence == "It keeps up: 4 records are on their way."
    behind = first(story(*(((10 * n,), (30 * n + 200,)) for n in range(1, 10)), members=0))
    assert (behind.rule, behind.next_step) == (
        "too slow",
        "It reads without members, as pipelines on Spark do: give it more cores, or larger batches.",
    )


def test_a_pipeline_that_stopped_is_missed_after_three_commits():
    commits = [((10 * n,), (10 * n + 4,)) for n in range(1, 5)]
    waits = [((40,), (50 + 10 * n,)) for n in range(3)]
    assert "empty" not in rules(story(*commits, *waits, members=0))
    found = first(story(*commits, *waits, ((40,), (90,)), members=0))
    assert (found.severity, found.rule) == ("bad", "empty")
    assert found.sentence == "Nobody reads: the last commit, by a reader that is no member, was 1 min ago."


def test_one_reset_of_an_empty_group_is_no_reader():
    moments = [((10,), (90,)), ((10,), (90,)), ((50,), (95,)), ((50,), (96,))]
    assert rules(story(*moments, members=0)) == ["empty"]


def test_an_empty_group_without_lag_is_fine():
    assert rules(story(((5,), (5,)), ((5,), (5,)), members=0)) == ["level"]


def test_rebalancing_again_and_again():
    moments = [((n,), (n + 5,), {"epoch": n}) for n in range(1, 12)]
    found = first(story(*moments))
    assert (found.severity, found.rule, found.sentence) == ("bad", "rebalancing", "It rebalances every 15 s.")


def test_a_partition_that_stands_while_others_move():
    moments = [((100, 10 * n, 10 * n), (100 + 50 * n, 10 * n + 5, 10 * n + 5)) for n in range(1, 9)]
    facts = Facts(records={ORDERS[0]: "The record there is 4.1 MB and not valid JSON."})
    found = first(story(*moments), facts)
    assert (found.rule, found.partition) == ("stalled", ORDERS[0])
    assert found.sentence == (
        "Partition orders-0 stands at 100 for 1 min. The record there is 4.1 MB and not valid JSON."
    )


def test_an_open_transaction_holds_readers_back_and_is_not_a_stall():
    moments = [((100, 100, 100), (100 + 50 * n, 100, 100)) for n in range(1, 9)]
    facts = Facts(stable_ends={ORDERS[0]: 100}, open_since={ORDERS[0]: "producer 9001, open for 12 min"})
    found = explain(story(*moments), facts)
    assert [each.rule for each in found] == ["open transaction"]
    assert found[0].sentence == "Readers of committed records wait for producer 9001, open for 12 min."


def test_one_partition_takes_most_of_what_comes_in():
    moments = [((n * 10, n * 10, n * 10), (5000 + n * 900, n * 10 + 20, n * 10 + 20)) for n in range(1, 9)]
    assert "hot partition" in rules(story(*moments))


def test_the_commonest_key_of_a_hot_partition_is_named():
    moments = [((n * 10, n * 10, n * 10), (5000 + n * 900, n * 10 + 20, n * 10 + 20)) for n in range(1, 9)]
    samples = story(*moments)
    assert list(hot_partitions(samples)) == [ORDERS[0]]
    facts = Facts(common_keys={ORDERS[0]: 'the commonest key in its last 1,000 records is "unknown" (71%)'})
    found = [each for each in explain(samples, facts) if each.rule == "hot partition"]
    assert found[0].sentence == (
        "98% of what comes into orders goes to partition 0; "
        'the commonest key in its last 1,000 records is "unknown" (71%).'
    )


def test_a_quota_that_is_used_up_holds_a_member_back():
    moments = [((n * 150,), (5000 + n * 450,)) for n in range(1, 11)]
    known = {"members": {"app-1": [ORDERS[0]]}, "record_bytes": {"orders": 100.0}}
    found = explain(story(*moments, members=1), Facts(**known, allowed_bytes_s={"app-1": 1200.0}))
    assert [each.rule for each in found] == ["throttled", "too slow"]
    assert found[0].sentence == "A quota holds app-1 back: it may read 1,200 bytes/s, and reads 1,000."
    roomy = explain(story(*moments, members=1), Facts(**known, allowed_bytes_s={"app-1": 12_000.0}))
    assert "throttled" not in [each.rule for each in roomy]


def test_markers_and_gaps_are_no_lag():
    facts = Facts(next_offsets={ORDERS[0]: Next(600, 400, 0), ORDERS[1]: Next(300, 10, 100)})
    found = explain(story(((0, 0, 5), (600, 300, 5)), ((0, 0, 5), (600, 300, 5)), each_s=5), facts)
    (one,) = [each for each in found if each.rule == "markers"]
    assert one.sentence == (
        "Of the 900 unread offsets, 410 are markers of transactions and 100 were removed by compaction: "
        "the lag is less than it looks."
    )


def test_a_part_of_the_unread_offsets_is_called_a_part():
    facts = Facts(next_offsets={ORDERS[0]: Next(600, 300, 0)})
    (one,) = [each for each in explain(story(((0,), (6000,))), facts) if each.rule == "markers"]
    assert one.sentence.startswith("Of the 600 next offsets, 300 are markers of transactions:")


def test_a_group_before_a_marker_has_read_everything_and_is_not_stalled():
    moments = [((99,), (100,))] * 8
    assert rules(story(*moments)) == ["stalled"]
    found = explain(story(*moments), Facts(next_offsets={ORDERS[0]: Next(1, 1, 0)}))
    assert [each.rule for each in found] == ["markers"]
    assert found[0].severity == "ok"
    assert (
        found[0].sentence
        == "It has read every record: 1 offset is left, of which 1 is a marker of a transaction."
    )


def test_one_member_has_most_of_the_lag():
    moments = [((n, n, n), (5000 + n, 4000 + n, n)) for n in range(1, 9)]
    facts = Facts(members={"app-1": [ORDERS[0], ORDERS[1]], "app-2": [ORDERS[2]]})
    found = [each for each in explain(story(*moments), facts) if each.rule == "skewed members"]
    assert found[0].sentence == "app-1 has 2 of 3 partitions, and 100% of the lag."


def test_members_without_partitions():
    facts = Facts(members={"a": ORDERS, "b": [], "c": []})
    found = [each for each in explain(story(((5, 5, 5), (5, 5, 5))), facts) if each.rule == "idle members"]
    assert found[0].sentence == "2 of 3 members have nothing to read; there are 3 partitions."


def test_too_slow_says_how_many_members_are_missing():
    moments = [((n * 150, 0, 0), (n * 450, 0, 0)) for n in range(1, 11)]
    found = [each for each in explain(story(*moments, members=1)) if each.rule == "too slow"]
    assert found[0].sentence == "It reads 10/s, 30/s come in: about 3 more members of this speed are needed."


def test_catching_up_says_when_it_is_level():
    moments = [((n * 450, 0, 0), (10_000 + n * 150, 0, 0)) for n in range(1, 11)]
    found = [each for each in explain(story(*moments, members=1)) if each.rule == "catching up"]
    assert found[0].sentence == "It will be level in about 5 min."


def test_unread_records_that_retention_will_delete():
    facts = Facts(
        retention_ms={"orders": 3 * 3600_000},
        unread_since_ms={ORDERS[0]: 0},
        now_ms=3000_000,
    )
    found = [
        each
        for each in explain(story(((1, 0, 0), (9, 0, 0)), ((2, 0, 0), (9, 0, 0))), facts)
        if each.rule == "time to loss"
    ]
    assert found[0].sentence == "In 2 h 10 min retention begins to delete unread records."


def test_records_deleted_before_they_were_read():
    found = first(story(((5, 0, 0), (100, 0, 0), {"starts": (50, 0, 0)})))
    assert (found.rule, found.sentence) == ("lost", "45 records were deleted before they were read.")


def test_a_group_that_went_back():
    found = explain(story(((100,), (100,)), ((40,), (100,)), ((60,), (100,))))
    assert "It went back by 60 records 15 s ago." in [each.sentence for each in found]


def test_a_partition_without_a_leader_comes_first():
    found = first(story(((5,), (9,))), Facts(leaderless=frozenset({ORDERS[0]})))
    assert (found.severity, found.rule) == ("bad", "no leader")


def test_rare_commits_are_named():
    moments = [((60 * (n // 5),), (12 * n + 5,)) for n in range(20)]
    assert "rare commits" in rules(story(*moments))


def test_no_samples_no_findings():
    assert explain([]) == []


def test_spans_of_time_in_words():
    words = [span(each) for each in (41, 720, 7800, 7200, 3 * 86400)]
    assert words == ["41 s", "12 min", "2 h 10 min", "2 h", "3 days"]
