"""The text format, and numbers about the last minutes."""

from ottla.counters import Histogram
from ottla.metrics import names
from ottla.metrics.families import Spelling
from ottla.metrics.rates import Rates, RecentCounts
from ottla.metrics.sinks import Labels, TextSink


def lines(sink):
    return sink.text().decode().splitlines()


def test_a_family_has_its_help_its_type_and_its_samples():
    sink = TextSink(Spelling.KAFKA)
    sink.one(names.LEADER_COUNT, 3)
    assert lines(sink) == [
        "# HELP kafka_server_replicamanager_leadercount Partitions that this broker leads.",
        "# TYPE kafka_server_replicamanager_leadercount gauge",
        "kafka_server_replicamanager_leadercount 3",
    ]
    assert sink.text().endswith(b"\n")


def test_hostile_label_values_stay_values():
    labels = Labels(("topic", 'a"} 1\nb\\'), ("client-id", "x"))
    assert labels.text == '{topic="a\\"} 1\\nb\\\\",client_id="x"}'


def test_confluents_rules_write_labels_in_lower_case():
    sink = TextSink(Spelling.CONFLUENT)
    sink.one(names.MAX_LAG, 1, Labels(("clientId", "Replica")))
    assert lines(sink)[-1] == 'kafka_server_replicafetchermanager_maxlag{clientid="Replica"} 1'
    sink.one(names.CONNECTIONS, 1, Labels(("listener", "L"), ("networkProcessor", "0")))
    assert lines(sink)[-1].endswith('{listener="L",network_processor="0"} 1')


def test_times_are_quantiles_of_the_last_minutes_and_a_count_of_all():
    histogram = Histogram()
    for _ in range(100):
        histogram.add(0.010)
    sink = TextSink(Spelling.KAFKA)
    sink.times(names.TOTAL_TIME, [(Labels(("request", "Produce")), histogram.counts, histogram.counts, 1.0)])
    text = lines(sink)
    median = next(line for line in text if 'quantile="0.50"' in line)
    assert 8 < float(median.split()[-1]) < 11
    assert 'kafka_network_requestmetrics_totaltimems_count{request="Produce"} 100' in text
    reporter = TextSink(Spelling.REPORTER)
    reporter.times(
        names.TOTAL_TIME, [(Labels(("request", "Produce")), histogram.counts, histogram.counts, 1.0)]
    )
    assert 'kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 1000.0' in lines(reporter)


def test_buckets_add_up_to_the_count():
    histogram = Histogram()
    histogram.add(0.03)
    histogram.add(3.0)
    sink = TextSink(Spelling.KAFKA)
    sink.buckets(names.STALLS, histogram.counts, histogram.sum_s)
    text = lines(sink)
    assert 'ottla_event_loop_stall_seconds_bucket{le="0.02"} 0' in text
    assert 'ottla_event_loop_stall_seconds_bucket{le="0.05"} 1' in text
    assert 'ottla_event_loop_stall_seconds_bucket{le="+Inf"} 2' in text
    assert "ottla_event_loop_stall_seconds_count 2" in text


def test_a_rate_is_the_growth_over_about_a_minute():
    rates = Rates(now=0.0)
    assert rates.per_s("records", 10, now=10.0) == 1.0
    for second in range(20, 200, 10):
        rate = rates.per_s("records", 10 + 5 * (second - 10), now=float(second))
    assert rate == 5.0


def test_recent_counts_forget_what_is_older_than_two_minutes():
    recent = RecentCounts(now=0.0)
    assert recent.of([5, 0], now=1.0) == [5, 0]
    assert recent.of([5, 0], now=60.0) == [5, 0]
    assert recent.of([6, 1], now=121.0) == [1, 1]
    assert recent.of([6, 1], now=122.0) == [1, 1]
