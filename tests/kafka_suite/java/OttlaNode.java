package ottla.kafkasuite;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/** One node as a process: its settings, its directory, its life. */
final class OttlaNode {
    private static final long START_MS = 60_000;
    private static final long STOP_MS = 60_000;

    final int id;
    final Map<String, String> settings;
    private final Path directory;
    private final List<String> formatting;
    private Process process;
    private boolean stopped;

    /** `formatting` are the arguments that say how to format the node's directories. */
    OttlaNode(int id, Path directory, Map<String, String> settings, List<String> formatting) {
        this.id = id;
        this.directory = directory;
        this.settings = new TreeMap<>(settings);
        this.formatting = formatting;
    }

    boolean running() {
        return process != null && process.isAlive();
    }

    /** Whether the node was started and has ended since. */
    boolean stopped() {
        return stopped;
    }

    /** Starts the process without waiting. Its output goes to files, so that no thread has to read it. */
    void launch() {
        try {
            Files.createDirectories(directory);
            Path file = directory.resolve("node-" + id + ".properties");
            StringBuilder text = new StringBuilder();
            settings.forEach((key, value) ->
                text.append(key).append('=').append(value.replace("\\", "\\\\").replace("\n", "\\n")).append('\n'));
            Files.writeString(file, text.toString());
            Files.deleteIfExists(output().toPath());
            List<String> command = new ArrayList<>(
                List.of(System.getProperty("ottla.python"), "-m", "kafka_suite.node", file.toString()));
            command.addAll(formatting);
            process = new ProcessBuilder(command)
                .redirectOutput(output())
                .redirectError(ProcessBuilder.Redirect.appendTo(errors()))
                .start();
            stopped = false;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void waitReady() {
        Waiting.until("node " + id + " is ready", START_MS, () -> {
            if (!process.isAlive()) {
                throw new IllegalStateException("node " + id + " ended with code " + process.exitValue() + ":\n" + log());
            }
            return Files.readString(output().toPath()).contains("ready on ");
        });
    }

    /** Asks the node to end and waits for it. */
    void shutdown() {
        if (running()) {
            // Process.destroy would close the node's standard input too, and the node would end at once.
            process.toHandle().destroy();
            try {
                if (!process.waitFor(STOP_MS, TimeUnit.MILLISECONDS)) {
                    process.destroyForcibly();
                    throw new IllegalStateException("node " + id + " did not end:\n" + log());
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
        stopped = true;
    }

    void kill() {
        if (process != null) {
            process.destroyForcibly();
            try {
                process.waitFor();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
        stopped = true;
    }

    /** The end of what the node wrote to standard error. */
    String log() {
        try {
            String text = Files.readString(errors().toPath());
            return text.substring(Math.max(0, text.length() - 4000));
        } catch (IOException error) {
            return error.toString();
        }
    }

    private File output() {
        return directory.resolve("node-" + id + ".out").toFile();
    }

    private File errors() {
        return directory.resolve("node-" + id + ".err").toFile();
    }
}
