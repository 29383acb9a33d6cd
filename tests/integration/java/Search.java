import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One node of OpenSearch. Arguments: a folder, the port of the web address. Ends with its input. */
public final class Search {
    private Search() {
    }

    public static void main(String[] arguments) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("http.port", arguments[1]);
            settings.put("transport.port", "0");
            settings.put("network.host", "127.0.0.1");
            settings.put("discovery.type", "single-node");
            settings.put("cluster.routing.allocation.disk.threshold_enabled", false);
        }).build(OpenSearchRunner.newConfigs().basePath(arguments[0]).numOfNode(1).clusterName("ottla"));
        runner.ensureYellow();
        System.out.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
