"What the tests of log directories share with the program that records them."
from kafka_scratch.apis.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest
from kafka_scratch.apis.alter_replica_log_dirs import AlterReplicaLogDirTopic, alter_replica_log_dirs
from kafka_scratch.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafka_scratch.apis.describe_log_dirs import describe_log_dirs

PLACE = '/tmp/kafka-log-dirs'           # where the real broker had its directories
FIRST, SECOND = f'{PLACE}/first', f'{PLACE}/second'
LONG = 'x' * 214                        # with partition, id and `-future`, its directory would have 256 characters
TOPICS = {'moves': 2, 'plain': 1, LONG: 1}


def describe(*topics) -> DescribeLogDirsRequest:
    "`('orders', 0, 1)`, …; `None` asks for all."
    if topics == (None,): return DescribeLogDirsRequest(topics=None)
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=list(numbers))
                                          for name, *numbers in topics])


def alter(*directories) -> AlterReplicaLogDirsRequest:
    "`('/path', ('orders', 0, 1), …)`, …"
    return AlterReplicaLogDirsRequest(dirs=[
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=list(numbers))
                                              for name, *numbers in topics]) for path, *topics in directories])


def odd_questions() -> dict:
    "Questions about sizes, by name: version and request."
    found = {f'all, version {version}': (version, describe(None)) for version in (1, 2, 3, 4)}
    return found | {
        'none': (4, describe()), 'one': (4, describe(('moves', 0))), 'both': (4, describe(('moves', 1, 0))),
        'unknown topic': (4, describe(('nobody', 0))), 'an odd name': (4, describe(('a b!', 0), ('', 0))),
        'unknown partition': (4, describe(('moves', 7, -1))), 'some of them': (4, describe(('moves', 7, 0), ('no', 0))),
        'no partitions': (4, describe(('moves',))), 'twice': (4, describe(('moves', 0, 0), ('moves', 0))),
        'twice, others': (4, describe(('moves', 0), ('moves', 1))),
        'the metadata': (4, describe(('__cluster_metadata', 0))),
        'several': (1, describe(('plain', 0), ('moves', 0, 1)))}


def odd_moves(at: dict[str, str]) -> dict:
    "Moves that are refused, or that change nothing: `at` says where partitions are."
    here, there = at['moves-0'], SECOND if at['moves-0'] == FIRST else FIRST
    return {
        'unknown directory': (2, alter((f'{PLACE}/third', ('moves', 0)))),
        'a relative path': (2, alter(('first', ('moves', 0)))),
        'a slash at the end': (2, alter((f'{there}/', ('moves', 0)))),
        'a dot': (2, alter((f'{PLACE}/./first', ('moves', 0)), (f'{PLACE}/./second', ('moves', 1)))),
        'no path': (2, alter(('', ('moves', 0)))),
        'the directory of a partition': (2, alter((f'{here}/moves-0', ('moves', 0)))),
        'where it is': (2, alter((here, ('moves', 0)))), 'where it is, version 1': (1, alter((here, ('moves', 0)))),
        'unknown partition': (2, alter((here, ('moves', 7, -1)))),
        'odd names': (2, alter((here, ('a b!', 0), ('', 0)))),
        'the metadata': (2, alter((here, ('__cluster_metadata', 0)))),
        'a long name': (2, alter((there, (LONG, 0)))),
        'a long name, where it is': (2, alter((at[f'{LONG}-0'], (LONG, 0)))),
        'a long name, and nowhere': (2, alter((f'{PLACE}/third', (LONG, 0)))),
        'an unknown long name': (2, alter((here, ('y' * 230, 0)))),
        'an unknown topic, and nowhere': (2, alter((f'{PLACE}/third', ('nobody', 0)))),
        'no directories': (2, alter()), 'no topics': (2, alter((there,))),
        'no partitions': (2, alter((there, ('moves',)))),
        'twice': (2, alter((here, ('moves', 0, 0)), (here, ('moves', 0)))),
        'nowhere, then where it is': (2, alter((f'{PLACE}/third', ('moves', 0)), (here, ('moves', 0)))),
        'where it is, then nowhere': (2, alter((here, ('moves', 0)), (f'{PLACE}/third', ('moves', 0)))),
        'some of each': (1, alter((here, ('moves', 0, 9), ('plainer', 0)), (f'{PLACE}/third', ('plain', 0))))}


def forbidden() -> dict:
    "What somebody asks who may not: API, version and request."
    asked = {f'all, version {version}': (describe_log_dirs, version, describe(None)) for version in (1, 2, 3, 4)}
    moves = alter((FIRST, ('moves', 0, 0, 1), ('nobody', 0)), (SECOND, ('moves', 0), ('',)), ('', ('plain', 0)))
    asked |= {'some': (describe_log_dirs, 4, describe(('moves', 0)))}
    return asked | {f'moves, version {version}': (alter_replica_log_dirs, version, moves) for version in (1, 2)}
