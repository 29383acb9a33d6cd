import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command line tools, one after the other, in one JVM: a line in with class, input and arguments
 * (in base64), a line out with the exit code and what was printed. */
public class ToolsOracle {
    static class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    static int code;
    static boolean ended;
    static final List<Runnable> hooks = new ArrayList<>();

    static void end(int status) {
        if (!ended) {
            ended = true;
            code = status;
            // A tool that catches everything would tell of this, too.
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    static byte[] decode(String word) {
        return Base64.getDecoder().decode(word.substring(1));
    }

    static String encode(ByteArrayOutputStream stream) {
        return Base64.getEncoder().encodeToString(stream.toByteArray());
    }

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream answers = System.out;
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ");
            String[] arguments = Arrays.stream(words).skip(2).map(word -> new String(decode(word))).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            PrintStream ownOut = new PrintStream(out, true);
            PrintStream ownErr = new PrintStream(err, true);
            System.setOut(ownOut);
            System.setErr(ownErr);
            System.setIn(new ByteArrayInputStream(decode(words[1])));
            code = 0;
            ended = false;
            hooks.clear();
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (java.lang.reflect.InvocationTargetException failure) {
                if (!(failure.getCause() instanceof Ended)) {
                    code = 1;
                    failure.getCause().printStackTrace();
                }
            }
            System.setOut(ownOut);
            System.setErr(ownErr);
            for (Runnable hook : hooks) {
                hook.run();
            }
            ownOut.flush();
            ownErr.flush();
            answers.println(code + " " + encode(out) + " " + encode(err));
            answers.flush();
        }
    }
}
