import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's engine in a process of its own. Standard input and output are pipes to `host.py`, which documents the
 * frames. A batch is marked as done only when the other side says that it is stored; when the pipe closes, the process
 * ends at once.
 */
public final class EngineHost {
    private static final int MOST_SCHEMAS = 1000;
    private static final int STOP_SECONDS = 20;

    private final DataOutputStream out =
            new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
    private final DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
    private final ObjectMapper mapper = new ObjectMapper();
    private final JsonConverter converter = converter("false");
    private final JsonConverter withDefaults = converter("true");
    private final Map<Schema, Integer> schemas = new IdentityHashMap<>();
    private int schemaNumber = 0;
    private final Semaphore stored = new Semaphore(0);
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean stopping = false;

    public static void main(String[] arguments) throws Exception {
        EngineHost host = new EngineHost();
        System.setOut(System.err);
        String mode = host.readText();
        Properties properties = new Properties();
        for (int left = host.in.readInt(); left > 0; left--) {
            String key = host.readText();
            properties.setProperty(key, host.readText());
        }
        try {
            if (mode.equals("validate")) {
                host.validate(properties);
            } else {
                host.run(properties);
            }
        } catch (Throwable error) {
            host.fail(null, error);
        }
        Runtime.getRuntime().halt(0);
    }

    private static JsonConverter converter(String nullsAsDefaults) {
        JsonConverter made = new JsonConverter();
        made.configure(Map.of("schemas.enable", "false", "replace.null.with.default", nullsAsDefaults), false);
        return made;
    }

    // -- what it does

    private void validate(Properties properties) throws Exception {
        Map<String, String> config = new HashMap<>();
        properties.stringPropertyNames().forEach(name -> config.put(name, properties.getProperty(name)));
        SourceConnector connector = (SourceConnector)
                Class.forName(config.get("connector.class")).getDeclaredConstructor().newInstance();
        List<String> found = new ArrayList<>();
        for (ConfigValue value : connector.validate(config).configValues()) {
            value.errorMessages().forEach(message -> found.add(value.name() + ": " + message));
        }
        synchronized (out) {
            out.writeByte('V');
            writeText(connector.version());
            out.writeInt(found.size());
            for (String one : found) {
                writeText(one);
            }
            out.flush();
        }
    }

    private void run(Properties properties) throws Exception {
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine
                .create(ChangeEventFormat.of(Connect.class))
                .using(properties)
                .using((boolean success, String message, Throwable error) -> {
                    if (!success && !stopping) {
                        fail(message, error);
                    }
                    ended.countDown();
                })
                .notifying(this::handle)
                .build();
        new Thread(engine, "engine").start();
        try {
            for (byte word = in.readByte(); word != 'Q'; word = in.readByte()) {
                stored.release();
            }
        } catch (EOFException gone) {
            Runtime.getRuntime().halt(1);
        }
        stopping = true;
        stored.release();
        Thread closing = new Thread(() -> {
            try {
                engine.close();
            } catch (IOException | IllegalStateException ignored) {
                // It has ended by itself.
            }
        });
        closing.setDaemon(true);
        closing.start();
        ended.await(STOP_SECONDS, TimeUnit.SECONDS);
    }

    private synchronized void handle(
            List<RecordChangeEvent<SourceRecord>> batch,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer)
            throws InterruptedException {
        try {
            send(batch);
        } catch (IOException gone) {
            Runtime.getRuntime().halt(1);
        }
        stored.acquire();
        if (stopping) {
            throw new InterruptedException("the connector stops");
        }
        for (RecordChangeEvent<SourceRecord> one : batch) {
            committer.markProcessed(one);
        }
        committer.markBatchFinished();
    }

    // -- frames

    private void send(List<RecordChangeEvent<SourceRecord>> batch) throws IOException {
        synchronized (out) {
            for (RecordChangeEvent<SourceRecord> one : batch) {
                send(one.record());
            }
            out.writeByte('B');
            out.flush();
        }
    }

    private void send(SourceRecord record) throws IOException {
        int keySchema = number(record.keySchema());
        int valueSchema = number(record.valueSchema());
        List<Header> headers = new ArrayList<>();
        List<Integer> headerSchemas = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header);
            headerSchemas.add(number(header.schema()));
        }
        out.writeByte('R');
        writeText(record.topic());
        out.writeInt(record.kafkaPartition() == null ? -1 : record.kafkaPartition());
        out.writeLong(record.timestamp() == null ? Long.MIN_VALUE : record.timestamp());
        out.writeInt(keySchema);
        writeBytes(json(record.topic(), record.keySchema(), record.key()));
        out.writeInt(valueSchema);
        writeBytes(json(record.topic(), record.valueSchema(), record.value()));
        out.writeInt(headers.size());
        for (int at = 0; at < headers.size(); at++) {
            writeText(headers.get(at).key());
            out.writeInt(headerSchemas.get(at));
            writeBytes(json(record.topic(), headers.get(at).schema(), headers.get(at).value()));
        }
        writeBytes(mapper.writeValueAsBytes(record.sourcePartition()));
        writeBytes(mapper.writeValueAsBytes(record.sourceOffset()));
    }

    /** The number of a schema, which is sent before it is first used; -1 for none. */
    private int number(Schema schema) throws IOException {
        if (schema == null) {
            return -1;
        }
        Integer known = schemas.get(schema);
        if (known != null) {
            return known;
        }
        if (schemas.size() >= MOST_SCHEMAS) {
            schemas.clear();
        }
        schemas.put(schema, schemaNumber);
        out.writeByte('S');
        out.writeInt(schemaNumber);
        writeBytes(mapper.writeValueAsBytes(converter.asJsonSchema(schema)));
        return schemaNumber++;
    }

    private byte[] json(String topic, Schema schema, Object value) {
        if (value == null) {
            return null;
        }
        try {
            return converter.fromConnectData(topic, schema, value);
        } catch (DataException error) {
            // A field that may not be null was left to its default.
            return withDefaults.fromConnectData(topic, schema, value);
        }
    }

    /** Why the engine ended: each class of the chain of causes with its SQL state and its message. */
    private void fail(String message, Throwable error) {
        try {
            synchronized (out) {
                out.writeByte('E');
                writeText(message == null ? "" : message);
                List<Throwable> chain = new ArrayList<>();
                for (Throwable at = error; at != null && chain.size() < 20; at = at.getCause()) {
                    chain.add(at);
                }
                out.writeInt(chain.size());
                for (Throwable one : chain) {
                    writeText(one.getClass().getName());
                    writeText(one instanceof SQLException sql && sql.getSQLState() != null ? sql.getSQLState() : "");
                    writeText(one.getMessage() == null ? "" : one.getMessage());
                }
                out.flush();
            }
        } catch (IOException gone) {
            Runtime.getRuntime().halt(1);
        }
    }

    private void writeText(String text) throws IOException {
        writeBytes(text.getBytes(StandardCharsets.UTF_8));
    }

    private void writeBytes(byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null) {
            out.write(bytes);
        }
    }

    private String readText() throws IOException {
        return new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
    }
}
