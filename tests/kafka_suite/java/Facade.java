package ottla.kafkasuite;

import java.util.HashMap;
import java.util.Map;

import org.mockito.Mockito;

/**
 * An object of one of Kafka's server classes that answers a few methods from outside the broker. Any other method says
 * by name that it needs a broker inside this JVM, so that the report shows why a test cannot run.
 */
final class Facade {
    private final Map<String, Reply> replies = new HashMap<>();

    interface Reply {
        Object to(Object[] arguments) throws Throwable;
    }

    /** A test asked for something that only exists inside a broker of the same JVM. An Error ends retries at once. */
    static final class InsideBroker extends Error {
        InsideBroker(String method) {
            super("needs a broker inside this JVM: " + method);
        }
    }

    Facade answer(String method, Reply reply) {
        replies.put(method, reply);
        return this;
    }

    Facade value(String method, Object value) {
        return answer(method, arguments -> value);
    }

    <T> T of(Class<T> type) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            Reply reply = replies.get(name);
            if (reply != null) {
                return reply.to(call.getArguments());
            }
            if (name.equals("toString")) {
                return "Ottla's " + type.getSimpleName();
            }
            throw new InsideBroker(type.getSimpleName() + "." + name);
        }));
    }
}
