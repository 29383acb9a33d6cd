package ottla.kafkasuite;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips the tests of the committed list and gives the list's reason. A line is `class[#method]<tab>reason`. */
public final class ListedTests implements ExecutionCondition {
    private final Map<String, String> reasons = new HashMap<>();

    public ListedTests() throws IOException {
        String list = System.getProperty("ottla.listed");
        if (list == null) {
            return;
        }
        for (String line : Files.readAllLines(Path.of(list))) {
            int tab = line.indexOf('\t');
            if (tab > 0 && !line.startsWith("#")) {
                reasons.put(line.substring(0, tab), line.substring(tab + 1));
            }
        }
    }

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        String name = context.getTestClass().map(Class::getName).orElse("");
        String reason = reasons.get(name);
        if (reason == null && context.getTestMethod().isPresent()) {
            reason = reasons.get(name + "#" + context.getTestMethod().get().getName());
        }
        if (reason == null) {
            return ConditionEvaluationResult.enabled("not listed");
        }
        return ConditionEvaluationResult.disabled("listed: " + reason);
    }
}
