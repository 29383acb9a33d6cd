import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A broker and clients of each kind in one JVM, so that it loads the classes that tests need. */
public class Training {
    public static void main(String[] arguments) throws Exception {
        String properties = arguments[0];
        String bootstrap = arguments[1];
        Thread node = new Thread(() -> kafka.Kafka.main(new String[] {properties}));
        node.setDaemon(true);
        node.start();
        String strings = "org.apache.kafka.common.serialization.String";
        Map<String, Object> all = Map.of("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(all)) {
            admin.createTopics(List.of(new NewTopic("training", 1, (short) 1))).all().get();
        }
        Properties writing = new Properties();
        writing.putAll(all);
        writing.put("key.serializer", strings + "Serializer");
        writing.put("value.serializer", strings + "Serializer");
        writing.put("transactional.id", "training");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writing)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("training", "key", "value")).get();
            producer.commitTransaction();
        }
        for (String protocol : List.of("classic", "consumer")) {
            Properties reading = new Properties();
            reading.putAll(all);
            reading.put("key.deserializer", strings + "Deserializer");
            reading.put("value.deserializer", strings + "Deserializer");
            reading.put("group.id", protocol);
            reading.put("group.protocol", protocol);
            reading.put("auto.offset.reset", "earliest");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading)) {
                consumer.subscribe(List.of("training"));
                while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
                }
                consumer.commitSync();
            }
        }
        System.exit(0);
    }
}
