import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/** Runs named topologies in Kafka's own test driver: one line in, its answers out. */
public class StreamsOracle {
    static final Map<String, Consumer<StreamsBuilder>> TOPOLOGIES = new TreeMap<>();

    static Duration ms(long millis) {
        return Duration.ofMillis(millis);
    }

    static String show(String left, String right) {
        return left + "+" + right;
    }

    static KGroupedStream<String, String> grouped(StreamsBuilder b) {
        return b.<String, String>stream("a").groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
    }

    static JoinWindows within(long before, long after, long grace) {
        return JoinWindows.ofTimeDifferenceAndGrace(ms(after), ms(grace)).before(ms(before)).after(ms(after));
    }

    static class Tally extends ContextualProcessor<String, String, String, String> {
        private KeyValueStore<String, String> store;

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            store = context.getStateStore("tally");
            context.schedule(ms(50), PunctuationType.STREAM_TIME, now -> {
                try (var all = store.all()) {
                    all.forEachRemaining(e -> context().forward(new Record<>(e.key, "stream:" + e.value, now)));
                }
            });
            context.schedule(ms(1000), PunctuationType.WALL_CLOCK_TIME,
                now -> context().forward(new Record<>("clock", "tick", now)));
        }

        @Override
        public void process(Record<String, String> record) {
            if (record.key() == null) return;
            String held = store.get(record.key());
            store.put(record.key(), (held == null ? "" : held) + record.value());
        }
    }

    static {
        TOPOLOGIES.put("stateless", b -> {
            KStream<String, String> a = b.stream("a");
            a.filter((k, v) -> v != null && v.compareTo("m") < 0).mapValues(v -> v + "!").to("filtered");
            a.filterNot((k, v) -> v == null).map((k, v) -> KeyValue.pair(v, k)).to("mapped");
            a.filter((k, v) -> v != null).flatMapValues(v -> List.of(v, v + v)).selectKey((k, v) -> v).peek((k, v) -> { }).to("flat");
            a.filter((k, v) -> v != null).flatMap((k, v) -> List.of(KeyValue.pair(v, "1"), KeyValue.pair("x", v))).to("pairs");
            a.merge(b.stream("b")).to("merged");
            Map<String, KStream<String, String>> branches = a.split(Named.as("by-"))
                .branch((k, v) -> v == null, Branched.as("null"))
                .branch((k, v) -> v.compareTo("m") < 0, Branched.as("low"))
                .defaultBranch(Branched.as("rest"));
            branches.get("by-null").to("nulls");
            branches.get("by-low").to("low");
            branches.get("by-rest").to("rest");
            a.split().branch((k, v) -> v == null).branch((k, v) -> true).noDefaultBranch();
            a.repartition().to("again");
            a.repartition(Repartitioned.as("renamed")).to("again-named");
            a.foreach((k, v) -> { });
        });
        TOPOLOGIES.put("aggregates", b -> {
            KGroupedStream<String, String> g = grouped(b);
            g.count().toStream().to("count");
            g.reduce((x, y) -> x + y).toStream().to("reduce");
            g.aggregate(() -> ">", (k, v, agg) -> agg + v).toStream().to("aggregate");
            b.<String, String>stream("b").groupBy((k, v) -> v).count(Materialized.as("named")).toStream().to("regrouped");
            b.<String, String>stream("c").selectKey((k, v) -> v).groupByKey(Grouped.as("grp")).count().toStream().to("rekeyed");
        });
        TOPOLOGIES.put("wordcount", b -> b.<String, String>stream("a").flatMapValues(v -> List.of(v.split("")))
            .groupBy((k, v) -> v).count().toStream().to("counts"));
        TOPOLOGIES.put("tumbling", b -> {
            grouped(b).windowedBy(TimeWindows.ofSizeWithNoGrace(ms(20))).count().toStream().to("count");
            b.<String, String>stream("b").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(TimeWindows.ofSizeAndGrace(ms(20), ms(15)))
                .aggregate(() -> "", (k, v, agg) -> agg + v).toStream().to("aggregate");
        });
        TOPOLOGIES.put("hopping", b -> {
            grouped(b).windowedBy(TimeWindows.ofSizeAndGrace(ms(20), ms(10)).advanceBy(ms(7)))
                .reduce((x, y) -> x + y).toStream().to("reduce");
        });
        TOPOLOGIES.put("sliding", b -> {
            grouped(b).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(30)))
                .aggregate(() -> "", (k, v, agg) -> agg + v).toStream().to("aggregate");
            b.<String, String>stream("b").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(ms(10)))
                .count().toStream().to("count");
        });
        TOPOLOGIES.put("sessions", b -> {
            grouped(b).windowedBy(SessionWindows.ofInactivityGapWithNoGrace(ms(10))).count().toStream().to("count");
            b.<String, String>stream("b").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(20)))
                .aggregate(() -> "", (k, v, agg) -> agg + v, (k, x, y) -> x + y).toStream().to("aggregate");
            b.<String, String>stream("c").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(5), ms(5)))
                .reduce((x, y) -> x + y).toStream().to("reduce");
        });
        TOPOLOGIES.put("suppress", b -> {
            grouped(b).windowedBy(TimeWindows.ofSizeAndGrace(ms(20), ms(5))).count()
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("final");
            b.<String, String>stream("b").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(5))).count()
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("sessions");
            b.<String, String>stream("c").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).count()
                .suppress(Suppressed.untilTimeLimit(ms(15), Suppressed.BufferConfig.maxRecords(2).emitEarlyWhenFull())).toStream().to("limited");
        });
        TOPOLOGIES.put("emit-on-close", b -> {
            grouped(b).windowedBy(TimeWindows.ofSizeAndGrace(ms(20), ms(5))).emitStrategy(EmitStrategy.onWindowClose())
                .count().toStream().to("windows");
            b.<String, String>stream("b").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(5)))
                .emitStrategy(EmitStrategy.onWindowClose()).count().toStream().to("sessions");
            b.<String, String>stream("c").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(5)))
                .emitStrategy(EmitStrategy.onWindowClose()).count().toStream().to("sliding");
        });
        TOPOLOGIES.put("stream-joins", b -> {
            KStream<String, String> left = b.stream("a");
            KStream<String, String> right = b.stream("b");
            left.join(right, StreamsOracle::show, within(10, 10, 5)).to("inner");
            left.leftJoin(right, StreamsOracle::show, within(15, 5, 10)).to("left");
            left.outerJoin(right, StreamsOracle::show, within(5, 12, 3)).to("outer");
        });
        TOPOLOGIES.put("rekeyed-join", b -> {
            KStream<String, String> left = b.<String, String>stream("a").filter((k, v) -> v != null).selectKey((k, v) -> v);
            KStream<String, String> right = b.<String, String>stream("b").filter((k, v) -> v != null).map((k, v) -> KeyValue.pair(v, k));
            left.join(right, StreamsOracle::show, within(10, 10, 5), StreamJoined.as("jn")).to("inner");
            left.leftJoin(b.<String, String>table("c"), StreamsOracle::show).to("table");
        });
        TOPOLOGIES.put("stream-table", b -> {
            KTable<String, String> table = b.table("b");
            KStream<String, String> stream = b.stream("a");
            stream.join(table, StreamsOracle::show).to("inner");
            stream.leftJoin(table.mapValues(v -> v + "'"), StreamsOracle::show).to("left");
            stream.leftJoin(table.filter((k, v) -> v.compareTo("m") < 0), (k, x, y) -> k + ":" + x + y).to("filtered");
            GlobalKTable<String, String> global = b.globalTable("c");
            stream.join(global, (k, v) -> v, StreamsOracle::show).to("global");
            stream.leftJoin(global, (k, v) -> k, StreamsOracle::show).to("global-left");
        });
        TOPOLOGIES.put("tables", b -> {
            KTable<String, String> table = b.table("a");
            table.filter((k, v) -> v.compareTo("m") < 0).toStream().to("filtered");
            table.filterNot((k, v) -> v.compareTo("m") < 0, Materialized.as("kept")).toStream().to("filtered-kept");
            table.mapValues((k, v) -> k + v).toStream().to("mapped");
            KGroupedTable<String, String> g = table.groupBy((k, v) -> KeyValue.pair(v, k));
            g.count().toStream().to("count");
            g.aggregate(() -> "", (k, v, agg) -> agg + v, (k, v, agg) -> agg + "-" + v).toStream().to("aggregate");
            g.reduce((x, y) -> x + y, (x, y) -> x + "-" + y).toStream().to("reduce");
            b.<String, String>stream("b").toTable().toStream((k, v) -> v).to("made");
        });
        TOPOLOGIES.put("table-joins", b -> {
            KTable<String, String> left = b.table("a");
            KTable<String, String> right = b.table("b");
            left.join(right, StreamsOracle::show).toStream().to("inner");
            left.leftJoin(right, StreamsOracle::show).toStream().to("left");
            left.outerJoin(right, StreamsOracle::show, Materialized.as("outer-store")).toStream().to("outer");
            left.join(right.filter((k, v) -> v.compareTo("m") < 0), StreamsOracle::show)
                .groupBy((k, v) -> KeyValue.pair(v, k)).count().toStream().to("counted");
        });
        TOPOLOGIES.put("foreign-keys", b -> {
            KTable<String, String> left = b.table("a");
            KTable<String, String> right = b.table("b");
            left.join(right, v -> v.equals("z") ? null : v.substring(0, 1), StreamsOracle::show).toStream().to("inner");
            left.leftJoin(right, v -> v.equals("z") ? null : v.substring(0, 1), StreamsOracle::show).toStream().to("left");
        });
        TOPOLOGIES.put("cogroup", b -> {
            KGroupedStream<String, String> one = grouped(b);
            KGroupedStream<String, String> two = b.<String, String>stream("b").groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
            KGroupedStream<String, String> three = b.<String, String>stream("c").filter((k, v) -> v != null).groupBy((k, v) -> v);
            one.<String>cogroup((k, v, agg) -> agg + v).cogroup(two, (k, v, agg) -> agg + v.toUpperCase())
                .cogroup(three, (k, v, agg) -> agg + "." + v).aggregate(() -> "").toStream().to("all");
            KGroupedStream<String, String> four = b.<String, String>stream("d").filter((k, v) -> v != null).groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
            four.<String>cogroup((k, v, agg) -> agg + v).windowedBy(TimeWindows.ofSizeAndGrace(ms(20), ms(5)))
                .aggregate(() -> "", Materialized.with(Serdes.String(), Serdes.String())).toStream().to("windowed");
        });
        TOPOLOGIES.put("processor", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("tally"), Serdes.String(), Serdes.String()));
            b.<String, String>stream("a").process(Tally::new, "tally").to("out");
        });
    }

    static Properties config() {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        p.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        p.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        p.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        p.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        return p;
    }

    static String hex(byte[] data) {
        return data == null ? "-" : HexFormat.of().formatHex(data) + ".";
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        TopologyTestDriver driver = null;
        Map<String, TestOutputTopic<byte[], byte[]>> outputs = new HashMap<>();
        Map<String, TestInputTopic<String, String>> inputs = new HashMap<>();
        List<String> outputNames = List.of();
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topology" -> {
                    if (driver != null) driver.close();
                    StreamsBuilder builder = new StreamsBuilder();
                    TOPOLOGIES.get(words[1]).accept(builder);
                    Topology topology = builder.build();
                    driver = new TopologyTestDriver(topology, config(), Instant.ofEpochMilli(0));
                    outputs.clear();
                    inputs.clear();
                    for (int i = 2; i < words.length; i++) {
                        outputs.put(words[i], driver.createOutputTopic(words[i], new ByteArrayDeserializer(), new ByteArrayDeserializer()));
                    }
                    outputNames = List.of(words).subList(2, words.length);
                    System.out.println("described " + HexFormat.of().formatHex(topology.describe().toString().getBytes()));
                }
                case "in" -> {
                    TopologyTestDriver current = driver;
                    inputs.computeIfAbsent(words[1], t -> current.createInputTopic(t, new StringSerializer(), new StringSerializer()))
                        .pipeInput(words[2].equals("-") ? null : words[2], words[3].equals("-") ? null : words[3], Long.parseLong(words[4]));
                }
                case "time" -> driver.advanceWallClockTime(ms(Long.parseLong(words[1])));
                default -> throw new IllegalArgumentException(line);
            }
            StringBuilder said = new StringBuilder("said");
            for (String name : outputNames) {
                TestOutputTopic<byte[], byte[]> topic = outputs.get(name);
                while (!topic.isEmpty()) {
                    TestRecord<byte[], byte[]> record = topic.readRecord();
                    said.append(' ').append(name).append(',').append(hex(record.key())).append(',').append(hex(record.value()))
                        .append(',').append(record.timestamp());
                }
            }
            System.out.println(said);
        }
        if (driver != null) driver.close();
    }
}
