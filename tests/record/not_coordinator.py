"Records `not-coordinator.jsonl`: `python tests/record/not_coordinator.py`."
import tempfile
from pathlib import Path

from recording import Recorder, answer_in, command_line, framed

from benchmarks.real_kafka import RealKafka
from broker_process import Client, wait_until
from groups_by_hand import NO_TOPIC, NOT_LOADED, join_request, questions
from kafka_scratch.groups.classic_apis import heartbeat, join_group
from kafka_scratch.groups.classic_messages import HeartbeatRequest
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest, find_coordinator
from kafka_scratch.log.records import Record, read_batches, write_batch
from kafka_scratch.wire.codes import ErrorCode


def ask(port: int, api, request, version: int | None = None):
    version = api.request.VERSIONS[-1] if version is None else version
    with Client(port) as client: return answer_in(api, version, client.ask(framed(api, version, request)))


def record(directory: Path, to: Path):
    """Asks a real broker before there is a `__consumer_offsets`, and again when there is a record in it that it can't
    read."""
    settings = {'offsets.topic.num.partitions': 1}
    def ask_all(reason):
        for name, api, version, request in questions(): recorder.ask(f'{reason}: {name}', api, version, request)

    with RealKafka(directory, settings) as kafka:
        recorder = Recorder(kafka.port)
        ask_all(NO_TOPIC)
        wait_until(lambda: ask(kafka.port, find_coordinator,
                               FindCoordinatorRequest(coordinator_keys=['g'])).coordinators[0].error_code == 0,
                               'a coordinator', 30)
        wait_until(lambda: ask(kafka.port, join_group, join_request(), 3).error_code == 0, 'a group', 30)
    path = directory/'logs'/'__consumer_offsets-0'/f'{0:020}.log'
    last = list(read_batches(path.read_bytes()))[-1]
    # it ends in the middle
    spoilt = write_batch([Record(key=b'\0\2\0\1g', value=b'\0\3\0\x09consum')], base_timestamp=0, max_timestamp=0)
    epoch = last.header.partition_leader_epoch.to_bytes(4, 'big')
    path.write_bytes(path.read_bytes() + (last.last_offset + 1).to_bytes(8, 'big') + spoilt[8:12] + epoch + spoilt[16:])
    (directory/'logs'/'.kafka_cleanshutdown').unlink()
    for snapshot in path.parent.glob('*.snapshot'): snapshot.unlink()
    with RealKafka(directory, settings) as kafka:
        recorder.port = kafka.port
        wait_until(lambda: ask(kafka.port, heartbeat, HeartbeatRequest(group_id='g', generation_id=1,
            member_id='m')).error_code == ErrorCode.NOT_COORDINATOR, 'loading to fail', 30)
        ask_all(NOT_LOADED)
    recorder.save('not-coordinator.jsonl', to)


if __name__ == '__main__':
    to = command_line(__doc__).to
    with tempfile.TemporaryDirectory() as scratch: record(Path(scratch), to)
