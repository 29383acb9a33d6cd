import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.transport.Netty4Plugin;

/** One node of Elasticsearch. Arguments: a folder, the port of the web address. Ends with its input. */
public final class Elastic {
    private Elastic() {
    }

    /** A node with a plugin of the class path: plugins are else found in folders. */
    private static final class OwnNode extends Node {
        OwnNode(Environment environment) {
            super(environment, List.of(Netty4Plugin.class), false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
                .put("path.home", arguments[0])
                .put("cluster.name", "ottla")
                .put("http.port", arguments[1])
                .put("http.type", "netty4")
                .put("transport.type", "netty4")
                .put("transport.port", "0")
                .put("network.host", "127.0.0.1")
                .put("discovery.type", "single-node")
                .put("cluster.routing.allocation.disk.threshold_enabled", false)
                .build();
        Node node = new OwnNode(InternalSettingsPreparer.prepareEnvironment(
                settings, Map.of(), Path.of(arguments[0], "config"), () -> "one"));
        node.start();
        node.client().admin().cluster().prepareHealth().setWaitForYellowStatus().get();
        System.out.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
