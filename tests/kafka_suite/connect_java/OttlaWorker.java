package ottla.kafkasuite;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** An `ottla connect` worker as a process: its file, its log, its life. */
public final class OttlaWorker {
    private static final long START_MS = 60_000;
    private static final long STOP_MS = 60_000;
    private static final Pattern READY = Pattern.compile("Connect worker ready at (\\S+)");

    private final Process process;
    private final Path log;
    private URI url;

    private OttlaWorker(Process process, Path log) {
        this.process = process;
        this.log = log;
    }

    /** Starts a worker with Kafka's settings and returns when REST answers. */
    public static OttlaWorker start(String name, Map<String, String> settings) {
        try {
            Path directory = Files.createTempDirectory("ottla-connect-" + name + "-");
            Path file = directory.resolve("worker.properties");
            Map<String, String> own = new TreeMap<>(settings);
            // Twins of Kafka's test connectors in Python, in place of the folders with its jars.
            own.put("plugin.path", System.getProperty("ottla.plugins"));
            StringBuilder text = new StringBuilder();
            own.forEach((key, value) ->
                text.append(key).append('=').append(value.replace("\\", "\\\\").replace("\n", "\\n")).append('\n'));
            Files.writeString(file, text.toString());
            Path log = directory.resolve("worker.log");
            ProcessBuilder builder = new ProcessBuilder(
                System.getProperty("ottla.python"), "-m", "ottla", "connect", "run", file.toString())
                .redirectErrorStream(true)
                .redirectOutput(log.toFile());
            // The worker ends with the JVM, because it holds its standard input.
            builder.environment().put("OTTLA_STOP_WITH_STDIN", "1");
            OttlaWorker worker = new OttlaWorker(builder.start(), log);
            worker.waitReady();
            return worker;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void waitReady() {
        Waiting.until("the worker is ready", START_MS, () -> {
            if (!process.isAlive()) {
                throw new IllegalStateException("the worker ended with code " + process.exitValue() + ":\n" + log());
            }
            Matcher found = READY.matcher(Files.readString(log));
            if (!found.find()) {
                return false;
            }
            url = URI.create(found.group(1) + "/");
            return true;
        });
    }

    public URI url() {
        return url;
    }

    /** Asks the worker to end and waits for it. */
    public void stop() {
        process.destroy();
        try {
            if (!process.waitFor(STOP_MS, TimeUnit.MILLISECONDS)) {
                process.destroyForcibly();
                throw new IllegalStateException("the worker did not end:\n" + log());
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private String log() {
        try {
            String text = Files.readString(log);
            return text.substring(Math.max(0, text.length() - 4000));
        } catch (IOException error) {
            return error.toString();
        }
    }
}
