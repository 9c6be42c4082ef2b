"The driver of kcat, which is a command itself: this translates."
import json
import re
import signal
import subprocess
import sys
import threading
import time

from contract import PATIENCE, TURNS, key_of, main, numbers, say, say_turns, value_of, when_stdin_ends

QUICK = '-X', 'reconnect.backoff.ms=20', '-X', 'reconnect.backoff.max.ms=200'


def kcat(options, *arguments) -> list[str]: return ['kcat', '-b', options.bootstrap, *QUICK, *arguments]

def output(options, *arguments, **settings) -> str:
    return subprocess.run(kcat(options, *arguments), stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE,
                          **settings).stdout


def list_topics(options):
    say(topics=sorted(topic['topic'] for topic in json.loads(output(options, '-L', '-J'))['topics']))


def describe(options):
    topic, = json.loads(output(options, '-L', '-J', '-t', options.topic))['topics']
    for partition in topic['partitions']: say(partition=partition['partition'], leader=partition['leader'])


def lines(wanted) -> str:
    return ''.join(f'{key_of(number).decode()}|{value_of(number).decode()}\n' for number in wanted)


def produce(options):
    idempotent = ['-X', 'enable.idempotence=true'] if options.idempotent else []
    output(options, '-P', '-t', options.topic, '-K', '|', '-z', options.codec, '-X', 'linger.ms=20', *idempotent,
           input=lines(numbers(options.first, options.count)))
    say(produced=options.count)


def transact(options):
    "It commits when its input ends. If it is killed before, the next one of the same id aborts what was begun."
    for end, first in TURNS:
        before = count(options)
        process = subprocess.Popen(kcat(options, '-P', '-t', options.topic, '-K', '|', '-X',
                                        f'transactional.id={options.id}'), stdin=subprocess.PIPE, text=True)
        process.stdin.write(lines(numbers(first, 10)))
        if end == 'abort':
            process.stdin.write('x' * 100_000)   # the beginning of a line: it reads large pieces
            process.stdin.flush()
            while count(options) < before + 10: time.sleep(0.05)
            process.kill()
        process.communicate(timeout=PATIENCE)
        if process.returncode and end == 'commit': raise SystemExit('kcat did not commit')
    say_turns()


def count(options) -> int:
    "How many records there are, decided or not."
    return len(output(options, '-C', '-q', '-e', '-t', options.topic, '-o', 'beginning', '-X',
                      'isolation.level=read_uncommitted').splitlines())


def consume(options):
    printed = output(options, '-C', '-q', '-J', '-t', options.topic, '-o', 'beginning', '-c', str(options.count), '-X',
                     f'isolation.level={options.isolation}',
                     '-X', 'fetch.wait.max.ms=100')
    for line in printed.splitlines(): say_line(line)


def say_line(line: str):
    found = json.loads(line)
    say(partition=found['partition'], offset=found['offset'], key=found['key'], value=found['payload'])


def ask_offsets(options, when: int) -> dict[int, int]:
    asked = [word for number in range(options.partitions) for word in ('-t', f'{options.topic}:{number}:{when}')]
    return {int(partition): int(offset) for partition, offset in re.findall(r'\[(\d+)\] offset (\d+)',
        output(options, '-Q', *asked))}


def offsets(options):
    earliest, latest = ask_offsets(options, -2), ask_offsets(options, -1)
    for number in range(options.partitions): say(partition=number, earliest=earliest[number], latest=latest[number])


def member(options):
    leave = when_stdin_ends()
    settings = 'session.timeout.ms=6000', 'heartbeat.interval.ms=500', 'auto.commit.interval.ms=100', 'auto.offset.reset=earliest', 'fetch.wait.max.ms=100'  # noqa: E501
    # -E: without it, it would end when the broker is away.
    command = kcat(options, '-G', options.group, '-J', '-u', '-E', *[word for setting in settings for word in ('-X',
        setting)], options.topic)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    threads = [threading.Thread(target=target) for target in (lambda: follow_records(process),
                                                              lambda: follow_groups(process))]
    for thread in threads: thread.start()
    while process.poll() is None and not leave.wait(0.05): pass
    process.send_signal(signal.SIGTERM)
    for thread in threads: thread.join()
    if process.wait(PATIENCE): raise SystemExit(f'kcat ended with {process.returncode}')
    say(left=True)


def follow_records(process):
    for line in process.stdout: say_line(line)


def follow_groups(process):
    "On stderr it says what it was assigned: all of it, every time."
    for line in process.stderr:
        print(line, end='', file=sys.stderr, flush=True)
        if match := re.match(r'% Group .* rebalanced .*: (assigned|revoked): (.*)', line):
            say(assigned=sorted(map(int, re.findall(r'\[(\d+)\]', match[2]))) if match[1] == 'assigned' else [])


if __name__ == '__main__':
    main(list=list_topics, describe=describe, produce=produce, transact=transact, consume=consume, offsets=offsets,
         member=member)
