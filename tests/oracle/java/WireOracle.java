import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads lines of "class readVersion writeVersion hex" ("-" for the message as the constructor leaves it) and answers
 * each with the bytes Kafka's class writes and what its JSON converter tells: "hex json", or "!" and why not.
 */
public class WireOracle {
    private static final Map<String, Method> CONVERTERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] question) throws Exception {
        short readVersion = Short.parseShort(question[1]);
        short writeVersion = Short.parseShort(question[2]);
        Message message = (Message) Class.forName(question[0]).getConstructor().newInstance();
        try {
            if (!question[3].equals("-")) {
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(question[3]));
                message.read(new ByteBufferAccessor(bytes), readVersion);
                if (bytes.hasRemaining()) {
                    return "! " + bytes.remaining() + " bytes left";
                }
            }
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, writeVersion).buffer();
            byte[] copy = new byte[written.remaining()];
            written.get(copy);
            return HexFormat.of().formatHex(copy) + " " + json(message, writeVersion);
        } catch (UnsupportedVersionException e) {
            return "!unsupported " + e.getMessage();
        } catch (RuntimeException e) {
            return "!refused " + e;
        }
    }

    private static String json(Message message, short version) throws Exception {
        Method converter = CONVERTERS.computeIfAbsent(message.getClass().getName(), name -> {
            try {
                return Class.forName(name + "JsonConverter")
                    .getMethod("write", message.getClass(), short.class, boolean.class);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        });
        return converter.invoke(null, message, version, false).toString();
    }
}
