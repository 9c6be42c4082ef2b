"""What Kafka's own classes say about quotas, without a broker. `python tests/record/throttles.py`; needs a JDK.

`throttles.jsonl`: sequences of (time, value, is the limit looked at?), and how long a client would be muted for each.
`limits.jsonl`: for each set of the eight kinds of quotas, which one counts for some clients, and who shares it.
"""
import subprocess
import tempfile
from pathlib import Path

from recording import command_line

from benchmarks.real_kafka import java, libs

THROTTLES = r'''
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
                : kindOfStep < 9 ? random.nextInt(seconds * 1000 * samples)
                : random.nextInt(3 * seconds * 1000 * samples);
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
'''

LIMITS = r'''
import java.util.*;
import kafka.server.ClientQuotaManager;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.QuotaType;
import scala.Option;

public class Limits {
    static final String[][] LEVELS = {{"u", "c"}, {"u", "*"}, {"u", ""}, {"*", "c"}, {"*", "*"}, {"*", ""},
                                       {"", "c"}, {"", "*"}};
    static final String[][] CALLERS = {{"u", "c"}, {"u", "d"}, {"v", "c"}, {"v", "d"}, {"u", ""}, {"v", ""}};

    static Option<ClientQuotaManager.BaseUserEntity> user(String name) {
        if (name.isEmpty()) return Option.empty();
        return Option.apply(name.equals("*") ? ClientQuotaManager.DefaultUserEntity$.MODULE$
            : new ClientQuotaManager.UserEntity(name));
    }

    static Option<ConfigEntity> client(String name) {
        if (name.isEmpty()) return Option.empty();
        return Option.apply(name.equals("*") ? ClientQuotaManager.DefaultClientIdEntity$.MODULE$
            : new ClientQuotaManager.ClientIdEntity(name));
    }

    public static void main(String[] arguments) throws Exception {
        for (int mask = 1; mask < 256; mask++) {
            ClientQuotaManager manager = new ClientQuotaManager(new ClientQuotaManagerConfig(11, 1), new Metrics(),
                QuotaType.PRODUCE, Time.SYSTEM, "", Option.empty());
            for (int level = 0; level < 8; level++)
                if ((mask >> level & 1) == 1)
                    manager.updateQuota(user(LEVELS[level][0]), client(LEVELS[level][1]),
                        Option.apply(Quota.upperBound(level + 1)));
            List<String> found = new ArrayList<>();
            for (String[] caller : CALLERS) {
                KafkaPrincipal principal = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, caller[0]);
                double bound = manager.quota(principal, caller[1]).bound();
                Session session = new Session(principal, java.net.InetAddress.getLoopbackAddress());
                scala.collection.immutable.Map<String, String> tags =
                    manager.getOrCreateQuotaSensors(session, caller[1]).metricTags();
                String shared = ",\"" + tags.apply("user") + "\",\"" + tags.apply("client-id") + "\"]";
                found.add(bound > 8 ? "null" : "[" + (int) bound + shared);
            }
            System.out.println("{\"levels\":" + mask + ",\"found\":[" + String.join(",", found) + "]}");
            manager.initiateShutdown();
        }
        System.exit(0);
    }
}
'''


def printed(name: str, program: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, f'{name}.java')
        source.write_text(program)
        return subprocess.run([java(), '-cp', f'{libs()}/*', source], capture_output=True, text=True, check=True,
                              timeout=120).stdout


def record_all(to: Path):
    (to/'throttles.jsonl').write_text(printed('Throttles', THROTTLES))
    (to/'limits.jsonl').write_text(printed('Limits', LIMITS))


if __name__ == '__main__': record_all(command_line(__doc__).to)
