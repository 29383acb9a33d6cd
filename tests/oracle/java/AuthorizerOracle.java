import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Reads lines of words between tabs. "world" begins with other settings, "acl" adds one, "remove" takes one away by its
 * number; "ask" and "any" are answered with 1 for allowed and 0 for denied.
 */
public class AuthorizerOracle {
    private static StandardAuthorizer authorizer;
    private static final Map<String, Uuid> IDS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "world" -> begin(words[1], words[2]);
                case "acl" -> add(words);
                case "remove" -> authorizer.removeAcl(IDS.remove(words[1]));
                case "ask" -> out.println(ask(words));
                case "any" -> out.println(any(words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private static void begin(String superUsers, String everyone) {
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("super.users", superUsers, "allow.everyone.if.no.acl.found", everyone));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        IDS.clear();
    }

    private static void add(String[] words) {
        Uuid id = Uuid.randomUuid();
        IDS.put(words[1], id);
        authorizer.addAcl(id, new StandardAcl(
            ResourceType.fromCode(Byte.parseByte(words[2])), words[3], PatternType.fromCode(Byte.parseByte(words[4])),
            words[5], words[6], AclOperation.fromCode(Byte.parseByte(words[7])),
            AclPermissionType.fromCode(Byte.parseByte(words[8]))));
    }

    private static String ask(String[] words) throws Exception {
        ResourcePattern resource = new ResourcePattern(
            ResourceType.fromCode(Byte.parseByte(words[4])), words[5], PatternType.LITERAL);
        Action action = new Action(AclOperation.fromCode(Byte.parseByte(words[3])), resource, 1, true, true);
        return bit(authorizer.authorize(new Client(words[1], words[2]), List.of(action)).get(0));
    }

    private static String any(String[] words) throws Exception {
        return bit(authorizer.authorizeByResourceType(new Client(words[1], words[2]),
            AclOperation.fromCode(Byte.parseByte(words[3])), ResourceType.fromCode(Byte.parseByte(words[4]))));
    }

    private static String bit(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "1" : "0";
    }

    private record Client(KafkaPrincipal principal, InetAddress address) implements AuthorizableRequestContext {
        Client(String principal, String host) throws Exception {
            this(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
        }

        @Override
        public String listenerName() {
            return "CLIENTS";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_SSL;
        }

        @Override
        public InetAddress clientAddress() {
            return address;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "oracle";
        }

        @Override
        public int correlationId() {
            return 1;
        }
    }
}
