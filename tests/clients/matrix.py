"""The table of clients and jobs: who takes part, and what a client can't do, with the reason.

    python -m pytest tests/conversations/test_client_matrix.py --junitxml=matrix.xml
    python tests/clients/matrix.py matrix.xml        # prints the results of that run as a Markdown table
"""
import sys
import xml.etree.ElementTree
from collections import namedtuple

CODECS = 'none', 'gzip', 'snappy', 'lz4', 'zstd'
PROTOCOLS = 'classic', 'consumer'

# Test → what it is about. Those with variants are `job[variant]`.
JOBS = {'create': 'create a topic', 'list': 'list topics', 'describe': 'describe a topic', 'grow': 'add partitions',
        'configure': "change and ask for a topic's settings",
        'produce': 'produce', 'appear': "produce to a topic that isn't there yet", 'idempotent': 'produce, idempotent',
        'transact': 'transactions: commit and abort', 'copy': 'read, write and commit in one transaction',
        'consume': 'consume what all clients wrote', 'committed': 'read only what is committed',
        'compacted': 'read a compacted topic to its end', 'offsets': 'ask for offsets',
        'group': 'groups: members come, go and crash',
        'shared': 'share a group with a member of the other protocol', 'resume': 'go on after a restart of the broker',
        'groups': 'list and describe groups', 'forget': 'delete a group',
        'truncate': 'delete records', 'delete': 'delete a topic',
        'log_dirs': 'describe log dirs', 'move': 'move a log to another log dir', 'elect': 'elect leaders',
        'reassign': 'alter and list reassignments', 'quorum': 'describe the quorum',
        'features': 'update and describe features', 'quotas': 'alter and describe client quotas',
        'throttle': 'produce under a quota, and see the throttle time'}
VARIANTS = {'produce': CODECS, 'consume': CODECS, 'group': PROTOCOLS, 'resume': PROTOCOLS}

Client = namedtuple('Client', 'title cannot', defaults=({},))


def only_classic(reason: str) -> dict: return {'group[consumer]': reason, 'resume[consumer]': reason}
def no_admin(reason: str, *more: str) -> dict:
    return dict.fromkeys((*more, 'create', 'grow', 'configure', 'groups', 'forget', 'truncate', 'delete'), reason)


# What one asks of a broker, not of its topics.
OF_BROKERS = 'log_dirs', 'move', 'elect', 'reassign', 'quorum', 'features', 'quotas'
SILENT = 'it tells nobody of throttle times'
def no_call(*jobs: str, able: str = '') -> dict:
    return {job: 'it has no call for that' for job in jobs if job != able}


CLIENTS = {
    'confluent-kafka': Client('confluent-kafka', no_call(*OF_BROKERS, able='elect')),
    'kafka-python': Client('kafka-python', {**no_call('quotas'), **only_classic('it has only the classic protocol')}),
    'aiokafka': Client('aiokafka', {**no_call('forget', *OF_BROKERS), 'throttle': SILENT,
                                    **only_classic('it has only the classic protocol')}),
    'kcat': Client('kcat', {**no_admin('it produces, consumes and lists, nothing else', *OF_BROKERS),
                            'throttle': SILENT,
                            'copy': 'it can produce in a transaction, but not commit offsets in it',
                            **only_classic("Debian's librdkafka 2.0 has only the classic protocol")}),
    'kafkajs': Client('kafkajs', {**no_call(*OF_BROKERS, able='reassign'), 'throttle': SILENT,
                                  **only_classic('it has only the classic protocol')}),
    'franz-go': Client('franz-go'),
    'java': Client('Java clients'),
    'console': Client('console tools', {'transact': 'kafka-console-producer has no transactions',
                                        'copy': 'kafka-console-producer has no transactions',
                                        'throttle': SILENT}),
    'spark': Client('Spark connector', {**no_admin('topics, groups and brokers are not its business', 'list',
                                                   'describe', *OF_BROKERS),
                                        'throttle': SILENT,
                                        **dict.fromkeys(('transact', 'copy'), 'its sink writes at least once'),
                                        'offsets': 'it asks for them, but tells nobody',
                                        **dict.fromkeys(('group[classic]', 'group[consumer]', 'shared'),
                                                        'it divides partitions among its tasks by itself'),
                                        'resume[consumer]': 'its offsets are in its checkpoint, not in a group'}),
}


def read_results(path: str) -> dict[tuple[str, str], str]:
    "What a junit file says: (client, job[variant]) → passed, failed or skipped."
    results = {}
    for case in xml.etree.ElementTree.parse(path).getroot().iter('testcase'):
        name, _, variant = case.get('name').removeprefix('test_').removesuffix(']').partition('[')
        client = next((client for client in CLIENTS if variant == client or variant.startswith(client + '-')), None)
        if name not in JOBS or client is None: continue
        words = {child.tag for child in case} & {'failure', 'error', 'skipped'}
        variant = variant.removeprefix(client).removeprefix('-')
        results[client, f'{name}[{variant}]' if variant
                else name] = 'passed' if not words else 'skipped' if words == {'skipped'} else 'failed'
    return results


WORDS = {('spark', 'resume'): '✓ by its checkpoint'}


def cell(client: str, job: str, results: dict) -> str:
    "One cell: ✓, ✗, – for what the client can't do, and nothing for what wasn't tried."
    variants = VARIANTS.get(job)
    marks = {variant: mark(client, f'{job}[{variant}]' if variant else job, results) for variant in variants or ['']}
    if len(set(marks.values())) == 1: return marks.popitem()[1]
    if set(marks.values()) == {'✓', '–'} and (client, job) in WORDS: return WORDS[client, job]
    return ' '.join(f'{sign} {", ".join(v for v in marks if marks[v] == sign)}' for sign
                    in dict.fromkeys(marks.values()) if sign != '–')


def mark(client: str, job: str, results: dict) -> str:
    if job in CLIENTS[client].cannot: return '–'
    return {'passed': '✓', 'failed': '✗'}.get(results.get((client, job)), '')


def markdown(results: dict) -> str:
    "The table, and below it why there are dashes."
    rows = [['', *(client.title for client in CLIENTS.values())], ['---', *[':-:'] * len(CLIENTS)]]
    rows += [[text, *(cell(client, job, results) for client in CLIENTS)] for job, text in JOBS.items()]
    return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)


def reasons() -> str:
    "Why there are dashes, a line for each client."
    lines = []
    for client in CLIENTS.values():
        by_reason = {}
        for job, reason in client.cannot.items(): by_reason.setdefault(reason, []).append(job)
        if by_reason:
            lines.append(f'- {client.title}: ' + '; '.join(f'{reason} ({", ".join(jobs)})' for reason,
                                                           jobs in by_reason.items()))
    return '\n'.join(lines)


if __name__ == '__main__': print(markdown(read_results(sys.argv[1])), reasons(), sep='\n\n')
