"""What every driver does, in whichever language:  driver JOB --bootstrap HOST:PORT [--name value ...]

A driver is a small program around one client library. It does one job with ordinary calls, prints what it saw as lines
of JSON, and ends with 0. Anything else is a failure, and stderr says why.

    create    --topic T --partitions N              {"created": T}
    list                                            {"topics": [...]}
    describe  --topic T                             {"partition": 0, "leader": 1} for each
    grow      --topic T --partitions N              {"partitions": N}
    configure --topic T --config NAME=VALUE         {"name": ..., "value": ...}: set, then asked for
    produce   --topic T --first N --count N         {"produced": N}
              [--codec gzip] [--idempotent true]
    transact  --topic T --id I                      {"committed": [...], "aborted": [...]}: tens of records by turns
    copy      --topic T --to U --group G --id I     {"copied": N}: in a transaction with the offsets read; the first one
              --count N                             is aborted, and everything is copied in the second
    consume   --topic T --partitions N --count N    {"partition": 0, "offset": 0, "key": ..., "value": ...} for each:
              [--isolation read_committed]          all partitions from the beginning, without a group
    offsets   --topic T --partitions N              {"partition": 0, "earliest": 0, "latest": 10} for each
    member    --topic T --group G                   records as consume does, and {"assigned": [0, 1]} when that changes;
              [--protocol consumer]                 commits what it has printed; leaves when its stdin ends: {"left":
              true}
              [--state DIRECTORY]                   (for a client that commits to a directory of its own, not to the
              group)
    groups    --topic T --partitions N --group G    {"group": G, "state": ..., "members": N} if it is among those
    listed;
                                                    {"partition": 0, "committed": 10} for each
    forget    --group G                             {"forgotten": G}: the group is deleted
    truncate  --topic T --partitions N --before N   {"partition": 0, "earliest": N} for each: records deleted
    delete    --topic T                             {"deleted": T}
    log_dirs  --topic T --partitions N              {"partition": 0, "dir": ..., "size": N} for each
    move      --topic T --partitions N --to DIR     {"moved": N}: the logs of these partitions go to that directory
    elect     --topic T --partitions N              {"partition": 0, "elected": false} for each: false if the preferred
                                                    replica leads already
    reassign  --topic T --partitions N --to B       {"moving": [...]}: to broker B; then the partitions on their way
    quorum                                          {"leader": 1, "voters": [1]}
    features  --config NAME=LEVEL                   {"name": NAME, "level": LEVEL}: updated, then asked for
    quotas    --id I [--config NAME=VALUE]          {"name": NAME, "value": VALUE} for each of a client id; with
                                                    --config {"set": NAME} instead
    throttle  --topic T --id I --count N            {"produced": N, "throttled": true}: has this client id to wait?

Record number N has the key `key-N` and the value of `value_of(N)`. A driver that starts slowly can also `serve`: it
takes such command lines on stdin, one after the other, each a JSON list, and ends each answer with {"done": true}, or
with {"failed": reason}.
"""
import argparse
import json
import os
import sys
import threading

PATIENCE = 30   # seconds, in which a client has to do what it was asked


def key_of(number: int) -> bytes: return b'key-%d' % number

def value_of(number: int) -> bytes:
    "Something that shrinks when it is compressed."
    return b'value-%d ' % number + b'abcdefghij' * 20


def say(**line):
    "One line of the answer."
    print(json.dumps(line), flush=True)


def say_record(partition: int, offset: int, key: bytes, value: bytes):
    say(partition=partition, offset=offset, key=key.decode(), value=value.decode())


def read_command(arguments: list[str]) -> argparse.Namespace:
    "A job and its options."
    parser = argparse.ArgumentParser()
    parser.add_argument('job')
    for name in 'bootstrap', 'topic', 'id', 'to', 'group', 'config', 'idempotent', 'state':
        parser.add_argument(f'--{name}')
    for name in 'partitions', 'first', 'count', 'before': parser.add_argument(f'--{name}', type=int, default=0)
    for name, default in {'codec': 'none', 'protocol': 'classic', 'isolation': 'read_uncommitted'}.items():
        parser.add_argument(f'--{name}', default=default)
    return parser.parse_args(arguments)


def when_stdin_ends() -> threading.Event:
    "An event that is set when whoever started this program wants it to end."
    event = threading.Event()
    def wait():
        while os.read(0, 1024): pass   # not through sys.stdin, whose lock it would hold when the program ends
        event.set()
    threading.Thread(target=wait, daemon=True).start()
    return event


def numbers(first: int, count: int): return range(first, first + count)

# The transactions of `transact`: what becomes of ten records each.
TURNS = ('commit', 0), ('abort', 10), ('commit', 20), ('abort', 30), ('commit', 40)

def say_turns():
    say(**{word: [n for end, first in TURNS if word.startswith(end[:5]) for n in numbers(first,
        10)] for word in ('committed', 'aborted')})


def main(**jobs):
    "Does the job that the command line names, or all that are asked for on stdin."
    if sys.argv[1:] != ['serve']: return do(jobs, sys.argv[1:])
    for line in sys.stdin:
        try:
            do(jobs, json.loads(line))
            say(done=True)
        except Exception as error: say(failed=f'{type(error).__name__}: {error}'[:4000])


def do(jobs: dict, arguments: list[str]):
    options = read_command(arguments)
    if options.job not in jobs: raise SystemExit(f'this driver has no job {options.job!r}')
    jobs[options.job](options)
