// Asks Apache Avro about schemas: one question per line, one answer per line.
// "compare<TAB>reader<TAB>writer" answers COMPATIBLE, INCOMPATIBLE or AMBIGUOUS; "text<TAB>schema" answers its text.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

public class AvroOracle {
    private static String answer(String[] words) {
        try {
            Schema first = new Schema.Parser().parse(words[1]);
            if (words[0].equals("text")) return first.toString();
            Schema second = new Schema.Parser().parse(words[2]);
            try {
                return SchemaCompatibility.checkReaderWriterCompatibility(first, second).getType().name();
            } catch (AvroRuntimeException error) {
                return "AMBIGUOUS";
            }
        } catch (AvroRuntimeException error) {
            return "INVALID " + String.valueOf(error.getMessage()).replace('\n', ' ').replace('\t', ' ');
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) out.println(answer(line.split("\t")));
        out.flush();
    }
}
