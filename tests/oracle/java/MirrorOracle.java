import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.IdentityReplicationPolicy;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.OffsetSync;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** MirrorMaker 2's classes, a JSON request and a JSON answer in each line. */
public class MirrorOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            switch (request.get("kind").asText()) {
                case "policy" -> policy(request, answer);
                case "pairs" -> pairs(request, answer);
                case "translate" -> translate(request, answer);
                default -> record(request, answer);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    static void policy(JsonNode request, ObjectNode answer) {
        Map<String, Object> keys = new HashMap<>();
        keys.put("source.cluster.alias", "A");
        if (request.has("separator")) keys.put("replication.policy.separator", request.get("separator").asText());
        if (request.has("internal"))
            keys.put("replication.policy.internal.topic.separator.enabled", request.get("internal").asText());
        DefaultReplicationPolicy policy =
            request.get("identity").asBoolean() ? new IdentityReplicationPolicy() : new DefaultReplicationPolicy();
        policy.configure(keys);
        String topic = request.get("topic").asText();
        answer.put("remote", policy.formatRemoteTopic("A", topic));
        answer.put("source", policy.topicSource(topic));
        answer.put("upstream", policy.upstreamTopic(topic));
        answer.put("original", policy.originalTopic(topic));
        answer.put("heartbeats", policy.isHeartbeatsTopic(topic));
        answer.put("checkpoints", policy.isCheckpointsTopic(topic));
        answer.put("internal", policy.isInternalTopic(topic));
        answer.put("syncsTopic", policy.offsetSyncsTopic("B"));
        answer.put("checkpointsTopic", policy.checkpointsTopic("A"));
    }

    static void pairs(JsonNode request, ObjectNode answer) throws Exception {
        Map<String, String> keys = new HashMap<>();
        request.get("keys").fields().forEachRemaining(one -> keys.put(one.getKey(), one.getValue().asText()));
        TreeSet<String> found = new TreeSet<>();
        new MirrorMakerConfig(keys).clusterPairs().forEach(one -> found.add(one.toString()));
        answer.put("pairs", String.join(" ", found));
    }

    static void translate(JsonNode request, ObjectNode answer) throws Exception {
        Map<String, Object> keys = new HashMap<>();
        keys.put("bootstrap.servers", request.get("bootstrap").asText());
        ObjectNode offsets = answer.putObject("offsets");
        RemoteClusterUtils.translateOffsets(keys, "A", request.get("group").asText(), Duration.ofSeconds(30))
            .forEach((place, one) -> offsets.put(place.toString(), one.offset()));
        answer.put("hops", RemoteClusterUtils.replicationHops(keys, "A"));
        answer.put("upstreams", String.join(" ", new TreeSet<>(RemoteClusterUtils.upstreamClusters(keys))));
        answer.put("checkpoints", String.join(" ", new TreeSet<>(RemoteClusterUtils.checkpointTopics(keys))));
    }

    static void record(JsonNode request, ObjectNode answer) throws Exception {
        TopicPartition place = request.has("topic")
            ? new TopicPartition(request.get("topic").asText(), request.get("partition").asInt()) : null;
        Object record = switch (request.get("kind").asText()) {
            case "sync" -> new OffsetSync(place, request.get("upstream").asLong(), request.get("downstream").asLong());
            case "checkpoint" -> new Checkpoint(request.get("group").asText(), place,
                request.get("upstream").asLong(), request.get("downstream").asLong(), request.get("metadata").asText());
            default -> new Heartbeat(request.get("source").asText(), request.get("target").asText(),
                request.get("timestamp").asLong());
        };
        answer.put("key", bytes(record, "recordKey"));
        answer.put("value", bytes(record, "recordValue"));
    }

    static String bytes(Object record, String name) throws Exception {
        Method method = record.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return Base64.getEncoder().encodeToString((byte[]) method.invoke(record));
    }
}
