/* Other topologies on Kafka Streams: java Topologies.java BOOTSTRAP INPUT OUTPUT APPLICATION STATE_DIR windows|upper|reduce|aggregate|join|keys */

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public class Topologies {
    public static void main(String[] words) throws Exception {
        String kind = words[5];
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[4]);
        // Without state our side is written at least once as well: the two do the same work.
        settings.put(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                kind.equals("upper") ? StreamsConfig.AT_LEAST_ONCE : StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(words[1]);
        switch (kind) {
            case "windows" -> records.groupByKey()
                    .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
                    .count()
                    .toStream()
                    .to(words[2], Produced.with(
                            WindowedSerdes.timeWindowedSerdeFrom(String.class, 10_000), Serdes.Long()));
            case "upper" -> records.filter((key, value) -> value.contains("a"))
                    .mapValues(value -> value.toUpperCase())
                    .to(words[2]);
            case "aggregate" -> records.groupByKey()
                    .aggregate(() -> 0L, (key, value, held) -> held + 1, Materialized.with(Serdes.String(), Serdes.Long()))
                    .toStream()
                    .to(words[2], Produced.with(Serdes.String(), Serdes.Long()));
            case "join" -> records.join(
                            records, (left, right) -> left + right, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(10)))
                    .to(words[2]);
            case "reduce" -> records.groupByKey().reduce((before, now) -> now).toStream().to(words[2]);
            default -> records.groupByKey().count().toStream()
                    .to(words[2], Produced.with(Serdes.String(), Serdes.Long()));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }
}
