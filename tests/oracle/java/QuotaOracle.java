// Asks Kafka's Rate and TokenBucket: one line of "kind samples windowMs limit" and then events "time value" per question;
// the answer has, after each event, the measured value and the throttle time that a quota of that limit gives.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

public class QuotaOracle {
    private static String rate(MetricConfig config, double limit, String[] words) {
        Rate rate = new Rate();
        StringBuilder answer = new StringBuilder();
        for (int at = 4; at < words.length; at += 2) {
            long now = Long.parseLong(words[at]);
            rate.record(config, Double.parseDouble(words[at + 1]), now);
            double value = rate.measure(config, now);
            long throttle = value > limit ? Math.round((value - limit) / limit * rate.windowSize(config, now)) : 0;
            answer.append(value).append(' ').append(throttle).append(' ');
        }
        return answer.toString();
    }

    private static String bucket(MetricConfig config, double limit, String[] words) {
        TokenBucket bucket = new TokenBucket();
        StringBuilder answer = new StringBuilder();
        for (int at = 4; at < words.length; at += 2) {
            long now = Long.parseLong(words[at]);
            bucket.record(config, Double.parseDouble(words[at + 1]), now);
            double value = bucket.measure(config, now);
            long throttle = value < 0 ? Math.round(-value / limit * 1000) : 0;
            answer.append(value).append(' ').append(throttle).append(' ');
        }
        return answer.toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            double limit = Double.parseDouble(words[3]);
            MetricConfig config = new MetricConfig().samples(Integer.parseInt(words[1])).
                timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS).quota(Quota.upperBound(limit));
            System.out.println(words[0].equals("rate") ? rate(config, limit, words) : bucket(config, limit, words));
        }
    }
}
