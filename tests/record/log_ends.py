"""Records `offset-for-leader-epoch.jsonl` and `delete-records.jsonl`: `python tests/record/log_ends.py`.

Three leaders write, by restarts; then all questions are asked. With each case the logs are kept as they were.
"""
import tempfile
import time
import warnings
from pathlib import Path

from recording import Recorder, command_line

from benchmarks import real_kafka
from log_ends_by_hand import deletes, ends, put
from kafka_scratch.apis.offset_for_leader_epoch import offset_for_leader_epoch
from kafka_scratch.apis.delete_records import delete_records
from kafka_scratch.log.checkpoints import read_checkpoint

TOPICS = {'ends.a': (2, 'delete'), 'ends.compact': (1, 'compact'), 'ends.both': (1, 'compact,delete')}


def questions_about_epochs() -> dict:
    a = 'ends.a'
    found = {'every epoch': (4, ends((a, *((0, -1, epoch) for epoch in (0, 1, 2, 3, 6, 7, 100, -1, -2))))),
             'current epochs': (4, ends((a, *((0, known, 0) for known in range(-3, 10))))),
             'an empty log': (4, ends((a, *((1, -1, epoch) for epoch in range(-3, 10))))),
             'an empty log, current epochs': (4,
                                              ends((a, *((1, known, epoch) for epoch in (-1, 0, 7) for known in (-1, 5,
                                                  6, 9))))),
             'unknown partitions': (4, ends((a, (7, -1, 0), (-1, 0, 0), (1, 9, 9)))),
             'unknown topics': (4, ends(('nobody', (0, -1, 0)), ('a b!', (0, 5, 0)), ('', (0, -1, -1)))),
             'a compacted topic': (4, ends(('ends.compact', (0, -1, 0), (0, -1, 6)))),
             'a topic without partitions': (4, ends((a,))), 'no topics': (4, ends()),
             'twice': (4, ends((a, (0, -1, 0)), ('x', (0, -1, 0)), (a, (1, -1, 2), (0, -1, 2), (0, -1, 2)))),
             'in order': (4, ends(('zz', (0, -1, 0)), ('ends.compact', (0, -1, 0)), (a, (1, -1, 0), (0, -1, 0)))),
             'the metadata': (4, ends(('__cluster_metadata', (0, -1, 0))))}
    found |= {f'version {version}': (version, ends((a, (0, -1, 0), (0, 3, 0), (9, 9, 9)))) for version in (2, 3, 4)}
    return found | {f'replica {replica}': (4, ends((a, (0, -1, 2)), replica_id=replica)) for replica in (-3, -2, 0, 1,
        5)}


def deletions() -> dict:
    a = 'ends.a'
    return {'unknown topics': (2, deletes(('nobody', (0, 1)), ('', (0, 1)), ('a b!', (0, -1)))),
            'unknown partitions': (2, deletes((a, (7, 1), (-1, 0)))),
            'beyond the end': (2, deletes((a, (0, 10)))), 'far beyond the end': (2, deletes((a, (0, 2**62)))),
            'below -1': (2, deletes((a, (0, -2)))), 'far below': (2, deletes((a, (0, -2**63)))),
            'nothing': (2, deletes((a, (0, 0)))),
            'up to 2, version 0': (0, deletes((a, (0, 2)))), 'back to 1': (2, deletes((a, (0, 1)))),
            'up to 3, version 1': (1, deletes((a, (0, 3)))),
            'up to 5': (2, deletes((a, (0, 5)))), 'twice, the last is wrong': (2,
                deletes((a, (0, 6), (0, 7)), (a, (0, -5), (1, 0)))),
            'twice, the last is right': (2, deletes((a, (0, 100), (0, 6)))),
            'a timeout below zero': (2, deletes((a, (0, 6)), timeout_ms=-1)),
            'an empty log, all': (2, deletes((a, (1, -1)))), 'an empty log, 0': (2, deletes((a, (1, 0)))),
            'an empty log, 1': (2, deletes((a, (1, 1)))),
            'compacted, all': (2, deletes(('ends.compact', (0, -1)))), 'compacted, beyond': (2,
                deletes(('ends.compact', (0, 77)))),
            'compacted and deleted': (2, deletes(('ends.both', (0, 1)))), 'no topics': (2, deletes()),
            'no partitions': (2, deletes((a,))),
            'several': (2, deletes(('zz', (0, 0)), ('ends.both', (0, 0)), (a, (1, 0), (0, 0)),
                                   ('ends.compact', (0, 0)))),
            'the metadata': (2, deletes(('__cluster_metadata', (0, -1)))),
            'internal': (2, deletes(('__consumer_offsets', (0, -1), (99, -1)))),
            'all': (2, deletes((a, (0, -1)))), 'all again': (2, deletes((a, (0, -1)))),
            'and one more': (2, deletes((a, (0, 10))))}


def record(to: Path):
    "Three leaders that write, by restarts; then all questions."
    warnings.simplefilter('ignore')
    from kafka.admin import KafkaAdminClient, NewTopic
    with tempfile.TemporaryDirectory() as place:
        kafka = real_kafka.RealKafka(place, {'offsets.topic.num.partitions': 1})
        state = {}   # per log: start, end
        def logs():
            policies = {f'{name}-{i}': policy for name,
                        (count, policy) in TOPICS.items() for i in range(count)} | {'__consumer_offsets-0': 'compact'}
            return {name: {'epochs': [[int(x) for x in row] for row
                                      in read_checkpoint(kafka.log_dir/name/'leader-epoch-checkpoint')], **state[name],
                                      'policy': policy}
                    for name, policy in policies.items()}
        try:
            kafka.start()
            admin = KafkaAdminClient(bootstrap_servers=f'127.0.0.1:{kafka.port}')
            admin.create_topics([NewTopic(name, count, 1, topic_configs={'cleanup.policy': policy}) for name,
                                 (count, policy) in TOPICS.items()])
            admin.create_topics([NewTopic('__consumer_offsets', 1, 1, topic_configs={'cleanup.policy': 'compact'})])
            admin.close()
            time.sleep(1)
            state |= {name: {'start': 0, 'end': 0} for name in ('ends.a-0', 'ends.a-1', 'ends.compact-0', 'ends.both-0',
                                                                '__consumer_offsets-0')}
            put(kafka.port, 'ends.a', 3), put(kafka.port, 'ends.both', 2), put(kafka.port, 'ends.compact', 1)
            kafka.stop(), kafka.start(), put(kafka.port, 'ends.a', 4)
            for _ in range(2): kafka.stop(), kafka.start(), time.sleep(1)
            put(kafka.port, 'ends.a', 2)
            state['ends.a-0']['end'], state['ends.both-0']['end'], state['ends.compact-0']['end'] = 9, 2, 1
            recorder = Recorder(kafka.port)
            for name, (version, request) in questions_about_epochs().items():
                recorder.ask(name, offset_for_leader_epoch, version, request, leader_epoch=6, logs=logs())
            recorder.save('offset-for-leader-epoch.jsonl', to)
            recorder = Recorder(kafka.port)
            for name, (version, request) in deletions().items():
                before = logs()
                said = recorder.ask(name, delete_records, version, request, leader_epoch=6, logs=before)
                for topic in said.topics:
                    for each in topic.partitions:
                        if not each.error_code:
                            state[f'{topic.name}-{each.partition_index}']['start'] = each.low_watermark
                time.sleep(0.1)
                recorder.cases[-1]['after'] = logs()
                recorder.cases[-1]['logs'] = before
            recorder.save('delete-records.jsonl', to)
        finally: kafka.stop()


if __name__ == '__main__': record(command_line(__doc__).to)
