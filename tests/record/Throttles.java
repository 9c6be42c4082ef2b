// Puts sequences of (time, value) through Kafka's own Rate and TokenBucket, and prints what each had to wait.
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.metrics.stats.*;
import org.apache.kafka.server.quota.QuotaUtils;

public class Throttles {
    static final long START = 1_700_000_000_000L;

    static long waited(Sensor sensor, double value, long time, boolean bucket, boolean check) {
        try {
            sensor.record(value, time, check);
            return 0;
        } catch (QuotaViolationException e) {
            return bucket ? Math.round(-e.value() / e.bound() * 1000) : QuotaUtils.throttleTime(e, time);
        }
    }

    static void play(String kind, int samples, int seconds, double bound, Random random) {
        boolean bucket = kind.equals("bucket");
        Metrics metrics = new Metrics();
        Sensor sensor = metrics.sensor("s");
        MetricConfig config = new MetricConfig().timeWindow(seconds, TimeUnit.SECONDS).samples(samples)
            .quota(new Quota(bound, true));
        sensor.add(new MetricName("m", "g", "", new HashMap<>()), bucket ? new TokenBucket() : new Rate(), config);
        List<String> events = new ArrayList<>();
        long time = START;
        for (int n = 0; n < 60; n++) {
            int kindOfStep = random.nextInt(10);
            long gap = kindOfStep < 5 ? random.nextInt(50) : kindOfStep < 8 ? random.nextInt(seconds * 1000)
                : kindOfStep < 9 ? random.nextInt(seconds * 1000 * samples) : random.nextInt(3 * seconds * 1000 * samples);
            time += gap;
            double value = Math.floor(random.nextDouble() * bound * seconds * (random.nextInt(4) == 0 ? 8 : 1) * 4) / 4;
            boolean check = random.nextInt(8) != 0;
            if (!check && random.nextBoolean()) value = -value;
            long wait = waited(sensor, value, time, bucket, check);
            events.add("[" + (time - START) + "," + value + "," + check + "," + wait + "]");
            if (wait > 0 && random.nextBoolean()) time += wait;
        }
        System.out.println("{\"kind\":\"" + kind + "\",\"samples\":" + samples + ",\"seconds\":" + seconds
            + ",\"bound\":" + bound + ",\"events\":[" + String.join(",", events) + "]}");
    }

    public static void main(String[] arguments) {
        Random random = new Random(4);
        for (String kind : List.of("rate", "bucket"))
            for (int[] shape : new int[][] {{11, 1}, {2, 1}, {1, 1}, {11, 5}, {3, 10}})
                for (double bound : new double[] {1024, 10, 0.5, 12.5})
                    play(kind, shape[0], shape[1], bound, random);
    }
}
