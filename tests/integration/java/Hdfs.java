import java.io.File;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with one name node and one data node. Arguments: a folder, the port of the web address. Ends with its input. */
public final class Hdfs {
    private Hdfs() {
    }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("dfs.namenode.http-address", "127.0.0.1:" + arguments[1]);
        settings.setBoolean("dfs.permissions.enabled", true);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, new File(arguments[0]))
            .nameNodeHttpPort(Integer.parseInt(arguments[1])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
