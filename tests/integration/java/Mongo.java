import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/** A server that speaks MongoDB's protocol, in memory, with a log of changes: a stand-in, not MongoDB. */
public final class Mongo {
    public static void main(String[] args) throws Exception {
        // It knows versions up to 4.0; PyMongo asks for 4.4, whose messages it understands as far as they are needed.
        MemoryBackend backend = new MemoryBackend();
        backend.version(new MongoVersion() {
            public List<Integer> getVersionArray() {
                return List.of(4, 4, 0);
            }

            public int getWireVersion() {
                return 9;
            }

            public String toVersionString() {
                return "4.4.0";
            }
        });
        MongoServer server = new MongoServer(backend);
        server.enableOplog();
        server.bind("127.0.0.1", Integer.parseInt(args[1]));
        System.out.println("ready");
        System.out.flush();
        // Ends with the test, which holds standard input.
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
