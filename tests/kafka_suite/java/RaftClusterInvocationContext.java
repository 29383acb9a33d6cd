package org.apache.kafka.common.test.junit;

import java.util.List;

import org.apache.kafka.common.test.api.ClusterConfig;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import ottla.kafkasuite.OttlaCluster;

/**
 * Stands before Kafka's class of the same name on the class path: each invocation of a cluster test gets a cluster of
 * Ottla processes instead of brokers inside this JVM.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String method;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String method, ClusterConfig config, boolean combined) {
        this.method = method;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int index) {
        String roles = combined ? "combined" : "dedicated";
        return method + " [" + index + "] " + roles + " " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OttlaCluster cluster = new OttlaCluster(config, combined);
        BeforeEachCallback start = context -> {
            cluster.prepare();
            if (config.isAutoStart()) {
                cluster.start();
            }
        };
        // A set-up that fails reaches only this callback, not the one after the test's own method.
        AfterEachCallback stop = context -> cluster.stop();
        return List.of(start, stop, new ClusterInstanceParameterResolver(cluster));
    }
}
