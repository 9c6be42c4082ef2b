"""Records what Apache Kafka 4.1.1 says about its settings, all of them.

    python tests/record/record_configs.py

`fixtures/wire/recorded/config-definitions.json`: every setting as its own program defines it: type, default, what it
may be, whether it can be
changed while the broker runs (`update`: `cluster-wide`, `per-broker`, or not at all), and whether Kafka keeps it to
itself (`internal`).
`fixtures/wire/recorded/all-configs.jsonl`: what a broker with as few settings of its own as possible answers to
DescribeConfigs, and to changes.
Facts only: the sentences with which Kafka documents its settings are not asked for. Needs a JDK (not only a Java) and
Kafka's jars.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1]/'helpers')]

from benchmarks.real_kafka import RealKafka, java, libs
from admin_by_hand import *
from recording import RECORDED, record

DEFINITIONS = RECORDED/'config-definitions.json'
# without these it doesn't start
FEW = 'process.roles', 'node.id', 'controller.listener.names', 'controller.quorum.voters', 'listeners', 'log.dirs'
NUMBERS = 'SHORT', 'INT', 'LONG', 'DOUBLE'

JAVA = '''
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;

public class Definitions {
    static void show(String kind, ConfigDef definitions, Map<String, String> updates) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values())
            System.out.println(String.join("\\t", kind, key.name, key.type.toString(),
                key.hasDefault() ? Objects.toString(ConfigDef.convertToString(key.defaultValue, key.type), "null") : "required",
                Objects.toString(key.validator, ""), updates.getOrDefault(key.name, ""), Boolean.toString(key.internalConfig)));
    }
    public static void main(String[] arguments) {
        show("broker", kafka.server.KafkaConfig.configDef(), kafka.server.DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes());
        show("topic", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy(), Map.of());
    }
}
'''  # noqa: E501


def definitions() -> dict[str, dict[str, dict]]:
    "What Kafka's program says about its settings: of brokers, and of topics."
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, 'Definitions.java')
        source.write_text(JAVA)
        printed = subprocess.run([java(), '-cp', f'{libs()}/*', source], capture_output=True, text=True, check=True,
                                 timeout=120).stdout
    found = {}
    for line in printed.splitlines():
        kind, name, type_, default, valid, update, internal = line.split('\t')
        found.setdefault(kind, {})[name] = {'type': type_, 'default': None if default in ('null',
            'required') else default, 'valid': valid,
                                            'update': update, 'internal': internal == 'true'}
    return found


def about_every_setting(ask, defined: dict[str, dict]):
    "All of them described; changes of those that are fixed, and of the others to what they can't be."
    ask('a topic', create(topic('orders')))
    ask('every setting of the broker', settings_of((BROKER, '1', None)))
    ask('every setting of a topic', settings_of((TOPIC, 'orders', None)))
    fixed = [name for name, each in defined.items() if not each['update']]
    alone = [name for name, each in defined.items() if each['update'] == 'per-broker']
    ask('what is fixed', alter((BROKER, '1', [(name, SET, 'x') for name in fixed]), validate_only=True))
    for name in ('broker.rack', 'unstable.api.versions.enable', 'controller.quorum.voters'):
        for who in ('1', ''): ask(f'{name} of {who!r}', alter((BROKER, who, [(name, SET, 'x')]), validate_only=True))
    for name, each in defined.items():
        if not each['update']: continue
        for text in ('x', '-5', '0') if each['type'] in NUMBERS else ('x',):
            ask(f'{name} {text}', alter((BROKER, '1', [(name, SET, text)]), validate_only=True))
        if name in alone:
            ask(f'{name} of all', alter((BROKER, '', [(name, SET, each['default'] or 'x')]), validate_only=True))
    ask('a mistake, and of all', alter((BROKER, '', [('ssl.client.auth', SET, 'x')]), validate_only=True))


class Plain(RealKafka):
    "A Kafka that goes by its defaults wherever it can."
    def _defaults(self) -> dict: return {name: value for name, value in super()._defaults().items() if name in FEW}


def record_all():
    found = definitions()
    DEFINITIONS.write_text('{\n' + ',\n'.join(f'{json.dumps(kind)}: {{\n'
                                              + ',\n'.join(f'{json.dumps(name)}: {json.dumps(each)}' for name,
                                                           each in settings.items()) + '\n}'
                                             for kind, settings in found.items()) + '\n}\n')
    with tempfile.TemporaryDirectory() as place, Plain(place) as kafka:
        record(kafka.port, lambda ask: about_every_setting(ask, found['broker']), 'all-configs.jsonl')


if __name__ == '__main__': record_all()
