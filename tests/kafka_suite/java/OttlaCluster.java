package ottla.kafkasuite;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandlerException;

/** A cluster of Ottla processes in the shape in which Kafka's tests want one. */
public final class OttlaCluster implements ClusterInstance {
    private static final int FIRST_CONTROLLER = 3000;
    private static final long WAIT_MS = 60_000;

    private final ClusterConfig config;
    private final boolean combined;
    private final String clusterId = Uuid.randomUuid().toString();
    private final Map<Integer, OttlaNode> nodes = new TreeMap<>();
    private final Map<Integer, Integer> clientPorts = new TreeMap<>();
    private final Map<Integer, Integer> controllerPorts = new TreeMap<>();
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final Map<Integer, ControllerServer> controllers = new TreeMap<>();
    private Path directory;
    private boolean started;
    private boolean ended;

    public OttlaCluster(ClusterConfig config, boolean combined) {
        this.config = config;
        this.combined = combined;
    }

    // -- life

    /** Chooses ports and settings. No process runs yet. */
    public void prepare() {
        if (directory != null) {
            return;
        }
        try {
            directory = Files.createTempDirectory("ottla-kafka-suite-");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        int firstController = combined ? 0 : FIRST_CONTROLLER;
        List<Integer> brokerIds = ids(0, config.numBrokers());
        List<Integer> controllerIds = ids(firstController, config.numControllers());
        List<Integer> ports = freePorts(brokerIds.size() + controllerIds.size());
        int next = 0;
        for (int id : brokerIds) {
            clientPorts.put(id, ports.get(next++));
        }
        for (int id : controllerIds) {
            controllerPorts.put(id, ports.get(next++));
        }
        Set<Integer> all = new HashSet<>(brokerIds);
        all.addAll(controllerIds);
        for (int id : all) {
            Map<String, String> settings = NodeSettings.of(
                config, id, directory, clientPorts, controllerPorts);
            nodes.put(id, new OttlaNode(id, directory, settings, formatting()));
        }
        brokerIds.forEach(id -> brokers.put(id, BrokerFacade.broker(this, nodes.get(id))));
        controllerIds.forEach(id -> controllers.put(id, BrokerFacade.controller(this, nodes.get(id))));
    }

    private List<String> formatting() {
        MetadataVersion wanted = config.metadataVersion();
        MetadataVersion newest = MetadataVersion.latestProduction();
        MetadataVersion version = wanted.isAtLeast(newest) ? newest : wanted;
        List<String> arguments = new ArrayList<>(List.of(clusterId, version.version()));
        config.features().forEach((feature, level) -> arguments.add(feature.featureName() + "=" + level));
        return arguments;
    }

    @Override
    public void start() {
        prepare();
        if (started) {
            return;
        }
        started = true;
        nodes.values().forEach(OttlaNode::launch);
        nodes.values().forEach(OttlaNode::waitReady);
        if (!brokers.isEmpty()) {
            waitForReadyBrokers();
        }
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public void stop() {
        if (ended) {
            return;
        }
        ended = true;
        nodes.values().forEach(OttlaNode::kill);
        if (directory != null) {
            try {
                Utils.delete(directory.toFile());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    @Override
    public boolean stopped() {
        return ended;
    }

    @Override
    public void shutdownBroker(int id) {
        broker(id).shutdown();
    }

    @Override
    public void startBroker(int id) {
        OttlaNode node = broker(id);
        if (!node.running()) {
            node.launch();
            node.waitReady();
        }
    }

    private OttlaNode broker(int id) {
        if (!brokers.containsKey(id)) {
            throw new IllegalArgumentException("Unknown brokerId " + id);
        }
        return nodes.get(id);
    }

    // -- what it is

    @Override
    public Type type() {
        return combined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String clusterId() {
        return clusterId;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return new LinkedHashMap<>(brokers);
    }

    @Override
    public Map<Integer, KafkaBroker> aliveBrokers() {
        Map<Integer, KafkaBroker> alive = new LinkedHashMap<>(brokers);
        alive.keySet().removeIf(id -> nodes.get(id).stopped());
        return alive;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return controllers;
    }

    @Override
    public Set<Integer> brokerIds() {
        return brokers.keySet();
    }

    @Override
    public Set<Integer> controllerIds() {
        return controllers.keySet();
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return addresses(clientPorts.values());
    }

    @Override
    public String bootstrapControllers() {
        return addresses(controllerPorts.values());
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return List.copyOf(clientPorts.values());
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return List.copyOf(controllerPorts.values());
    }

    int clientPort(int id) {
        return clientPorts.get(id);
    }

    int controllerPort(int id) {
        return controllerPorts.get(id);
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        String protocols = config.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "consumer");
        return protocols.contains("consumer")
            ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // -- waiting, by questions over the wire

    @Override
    public void waitForReadyBrokers() {
        Waiting.until("all brokers know each other", WAIT_MS, () -> eachBroker(
            admin -> admin.describeCluster().nodes().get().size() >= aliveBrokers().size()));
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) {
        Waiting.until("every broker knows topic " + topic, WAIT_MS, () -> eachBroker(admin ->
            admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == partitions));
    }

    @Override
    public void waitTopicDeletion(String topic) {
        Waiting.until("no broker knows topic " + topic, WAIT_MS, () -> eachBroker(admin ->
            !admin.listTopics().names().get().contains(topic)) && noFolderOf(topic));
    }

    private boolean noFolderOf(String topic) throws IOException {
        String first = topic + "-0";
        for (int id : aliveBrokers().keySet()) {
            for (String place : nodes.get(id).settings.get("log.dirs").split(",")) {
                try (var found = Files.list(Path.of(place))) {
                    if (found.anyMatch(path -> path.getFileName().toString().equals(first))) {
                        return false;
                    }
                }
            }
        }
        return true;
    }

    @Override
    public void ensureConsistentMetadata() {
        waitForMetadata();
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> some, Collection<ControllerServer> others) {
        waitForMetadata();
    }

    private void waitForMetadata() {
        try (Admin admin = admin()) {
            long end = admin.describeMetadataQuorum().quorumInfo().get().voters().stream()
                .mapToLong(voter -> voter.logEndOffset()).max().orElse(0);
            Waiting.until("every node has the metadata up to offset " + end, WAIT_MS, () -> {
                var quorum = admin.describeMetadataQuorum().quorumInfo().get();
                var replicas = new ArrayList<>(quorum.voters());
                replicas.addAll(quorum.observers());
                return replicas.stream().filter(replica -> aliveBrokers().containsKey(replica.replicaId()))
                    .allMatch(replica -> replica.logEndOffset() >= end);
            });
        } catch (Exception error) {
            throw new IllegalStateException("The quorum does not answer", error);
        }
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) {
        Waiting.until("the rights are " + entries, WAIT_MS, () -> eachBroker(admin ->
            admin.describeAcls(filter).values().get().stream().map(AclBinding::entry).collect(Collectors.toSet())
                .equals(new HashSet<>(entries))));
    }

    interface Question {
        boolean ask(Admin admin) throws Exception;
    }

    private boolean eachBroker(Question question) throws Exception {
        for (int id : aliveBrokers().keySet()) {
            if (!askBroker(id, question)) {
                return false;
            }
        }
        return true;
    }

    boolean askBroker(int id, Question question) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "localhost:" + clientPorts.get(id));
        try (Admin admin = admin(settings)) {
            return question.ask(admin);
        }
    }

    private static List<Integer> ids(int first, int count) {
        return IntStream.range(first, first + count).boxed().toList();
    }

    private static String addresses(Collection<Integer> ports) {
        return ports.stream().map(port -> "localhost:" + port).collect(Collectors.joining(","));
    }

    private static List<Integer> freePorts(int count) {
        List<ServerSocket> sockets = new ArrayList<>();
        try {
            for (int i = 0; i < count; i++) {
                sockets.add(new ServerSocket(0, 1, InetAddress.getLoopbackAddress()));
            }
            return sockets.stream().map(ServerSocket::getLocalPort).toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } finally {
            sockets.forEach(socket -> Utils.closeQuietly(socket, "port"));
        }
    }

    static String plainLogin() {
        return "org.apache.kafka.common.security.plain.PlainLoginModule required"
            + " username=\"" + JaasUtils.KAFKA_PLAIN_ADMIN + "\" password=\"" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\""
            + " user_" + JaasUtils.KAFKA_PLAIN_ADMIN + "=\"" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\""
            + " user_" + JaasUtils.KAFKA_PLAIN_USER1 + "=\"" + JaasUtils.KAFKA_PLAIN_USER1_PASSWORD + "\";";
    }
}
