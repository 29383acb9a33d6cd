import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;

/** Kafka's converters and transforms, a JSON request and a JSON answer in each line. */
public class ConnectOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                if (request.has("transform")) transform(request, answer);
                else if (request.has("header")) header(request, answer);
                else convert(request, answer);
            } catch (Exception error) {
                answer.removeAll();
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", error.getMessage());
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    static JsonConverter json(boolean schemas) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", Boolean.toString(schemas), "converter.type", "value"));
        return converter;
    }

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static void put(ObjectNode answer, String name, byte[] data) {
        answer.put(name, data == null ? null : Base64.getEncoder().encodeToString(data));
    }

    static Map<String, String> config(JsonNode request) {
        Map<String, String> found = new HashMap<>();
        request.get("config").properties().forEach(one -> found.put(one.getKey(), one.getValue().asText()));
        return found;
    }

    static void transform(JsonNode request, ObjectNode answer) throws Exception {
        JsonConverter converter = json(request.get("schemas").asBoolean());
        @SuppressWarnings("unchecked")
        Transformation<SinkRecord> transform = (Transformation<SinkRecord>)
            Class.forName(request.get("transform").asText()).getDeclaredConstructor().newInstance();
        transform.configure(config(request));
        SchemaAndValue key = converter.toConnectData("t", bytes(request.get("key")));
        SchemaAndValue value = converter.toConnectData("t", bytes(request.get("value")));
        SinkRecord record = new SinkRecord(request.get("topic").asText(), 3, key.schema(), key.value(), value.schema(),
            value.value(), 7, request.get("timestamp").asLong(), org.apache.kafka.common.record.TimestampType.CREATE_TIME);
        SimpleHeaderConverter headers = new SimpleHeaderConverter();
        for (JsonNode one : request.get("headers")) {
            SchemaAndValue parsed = headers.toConnectHeader("t", one.get(0).asText(), one.get(1).asText().getBytes(StandardCharsets.UTF_8));
            record.headers().add(one.get(0).asText(), parsed);
        }
        SinkRecord changed = transform.apply(record);
        if (changed == null) {
            answer.put("dropped", true);
            return;
        }
        answer.put("topic", changed.topic());
        put(answer, "key", converter.fromConnectData("t", changed.keySchema(), changed.key()));
        put(answer, "value", converter.fromConnectData("t", changed.valueSchema(), changed.value()));
        ArrayNode list = answer.putArray("headers");
        for (Header one : changed.headers()) {
            byte[] data = headers.fromConnectHeader("t", one.key(), one.schema(), one.value());
            list.addArray().add(one.key()).add(data == null ? null : new String(data, StandardCharsets.UTF_8))
                .add(one.schema() == null ? null : one.schema().type().name());
        }
    }

    static void convert(JsonNode request, ObjectNode answer) throws Exception {
        Converter converter = (Converter) Class.forName(request.get("converter").asText()).getDeclaredConstructor().newInstance();
        converter.configure(config(request), false);
        JsonConverter outside = json(true);
        if (request.get("to").asBoolean()) {
            SchemaAndValue found = converter.toConnectData("t", bytes(request.get("data")));
            put(answer, "data", outside.fromConnectData("t", found.schema(), found.value()));
        } else {
            SchemaAndValue found = outside.toConnectData("t", bytes(request.get("data")));
            put(answer, "data", converter.fromConnectData("t", found.schema(), found.value()));
        }
    }

    static void header(JsonNode request, ObjectNode answer) {
        SimpleHeaderConverter headers = new SimpleHeaderConverter();
        SchemaAndValue found = headers.toConnectHeader("t", "h", request.get("header").asText().getBytes(StandardCharsets.UTF_8));
        put(answer, "data", json(true).fromConnectData("t", found.schema(), found.value()));
        byte[] back = headers.fromConnectHeader("t", "h", found.schema(), found.value());
        answer.put("text", back == null ? null : new String(back, StandardCharsets.UTF_8));
    }
}
