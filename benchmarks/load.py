"""A load generator: N connections, D requests in flight on each, closed loop.

It must cost less than the servers it measures, so it is one epoll loop over raw sockets: requests are built before the
clock starts, with a ring of correlation ids already in place, and pipelined answers are verified a whole read at a
time.
Every answer's length and correlation id is compared; the first and the last answer of each connection are parsed in
full.

    python -m benchmarks.load --port 9092 --connections 50
    python -m benchmarks.load --port 9092 --in-flight 64 --topic orders --partitions 3
"""
import argparse
import gc
import json
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import processes, wire
from benchmarks.wire import LENGTH_AND_CORRELATION_ID, Question, WrongAnswer

RING = 1024            # how many correlation ids go round; more than can be in flight
DISTINCT = 16384       # and how many distinct requests; more than a cache of answers is likely to hold
FIRST_CORRELATION_ID = 0x0a0b0000
SILENCE = 10           # seconds without any answer that end a run with an error


@dataclass
class Result:
    "What one run measured. Latency runs from the send to the full answer."
    requests: int
    seconds: float
    rate: float                     # requests per second
    p50: float                      # seconds
    p99: float
    answer_bytes: int               # one answer, length prefix included
    load_cpu: float                 # share of one core that the load generator itself used
    server_cpu: float | None = None             # share of one core that the server used
    requests_per_cpu_second: float | None = None  # of the server


class Ring:
    "Requests and the first eight bytes of their answers, prepared for a ring of correlation ids."

    def __init__(self, question: Question, answer_size: int, in_flight: int):
        # More requests than there are in the pool: then it goes round. A power of two in any case.
        self.size = RING if question.varies_at is None and len(question.pool) <= RING else DISTINCT
        self.requests = [self._request(question, number) for number in range(self.size)]
        self.prefixes = [LENGTH_AND_CORRELATION_ID.pack(answer_size - 4, FIRST_CORRELATION_ID + number)
                         for number in range(self.size)]
        self.request_size, self.answer_size = len(question.request), answer_size
        # what to ask from a socket: larger buffers cost an mmap each
        self.room = min(in_flight * answer_size + 1, 1 << 16)
        # The ring and its beginning again, so that no run of neighbours ever wraps.
        self.block = memoryview(b''.join(self.requests + self.requests[:in_flight]))
        # Byte 0 of every expected prefix, byte 1 of every one, ...: what strided slices of a read are compared with.
        flat = b''.join(self.prefixes + self.prefixes[:in_flight])
        self.columns = [flat[byte::8] for byte in range(8)]

    def _request(self, question: Question, number: int) -> bytes:
        request = bytearray(question.pool[number % len(question.pool)] if question.pool else question.request)
        request[8:12] = (FIRST_CORRELATION_ID + number).to_bytes(4, 'big')
        if (at := question.varies_at) is not None:
            request[at:at + 4] = (int.from_bytes(request[at:at + 4], 'big') + number).to_bytes(4, 'big')
        return bytes(request)


class Meter:
    "Latencies with their counts, and what has been counted since the last reset."

    def __init__(self):
        self.reset()

    def reset(self) -> None:
        self.latencies: list[float] = []
        self.counts: list[int] = []

    def add(self, latency: float, count: int) -> None:
        self.latencies.append(latency)
        self.counts.append(count)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def quantiles(self, *shares: float) -> list[float]:
        "The latency that each share of the requests stayed within."
        ordered = sorted(zip(self.latencies, self.counts))
        wanted, found, seen = [share * self.total for share in shares], [], 0
        for latency, count in ordered:
            seen += count
            while len(found) < len(wanted) and seen >= wanted[len(found)]:
                found.append(latency)
        return found


class Connection:
    "One connection that keeps requests under way."
    __slots__ = ('socket', 'recv', 'write', 'first_answer', 'last_answer', 'pending', 'sent', 'received', 'unsent',
                 'sent_at', 'times')

    def __init__(self, port: int, question: Question):
        self.socket = socket.create_connection(('127.0.0.1', port), timeout=SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(question.request)
        self.first_answer = self._receive_answer()
        question.check(self.first_answer)
        self.recv, self.write = self.socket.recv, self.socket.send
        self.last_answer = b''
        self.pending = b''                    # the beginning of an answer that is still arriving
        self.sent = self.received = 0         # positions in the ring
        self.unsent = memoryview(b'')
        self.sent_at = 0.0                    # the last send
        self.times: deque = deque()           # with many in flight: [when sent, how many]
        self.socket.setblocking(False)

    def _receive_answer(self) -> bytes:
        prefix = wire.receive(self.socket, 4)
        return prefix + wire.receive(self.socket, int.from_bytes(prefix, 'big'))

    def send(self, ring: Ring, count: int, now: float) -> None:
        "Put `count` more requests on the wire, as one write."
        at = self.sent % ring.size * ring.request_size
        data = ring.block[at:at + count * ring.request_size]
        self.sent += count
        self.sent_at = now
        self.times.append([now, count])
        self.unsent = memoryview(bytes(self.unsent) + data) if self.unsent else data
        self.flush()

    def flush(self) -> None:
        "Hand over what the socket did not take before."
        try:
            self.unsent = self.unsent[self.socket.send(self.unsent):]
        except BlockingIOError:
            pass

    def receive(self, ring: Ring) -> int:
        "Read once; verify and count the answers that are complete."
        data = self.socket.recv(ring.room)
        if not data:
            raise WrongAnswer('the server closed the connection')
        if self.pending:
            data = self.pending + data
        size = ring.answer_size
        count = len(data) // size
        if count == 0 and len(data) < 8:
            self.pending = data
            return 0
        self.verify(ring, data, count)
        end = count * size
        self.pending = data[end:]
        if count:
            self.last_answer = data[end - size:end]
        self.received += count
        return count

    def verify(self, ring: Ring, data: bytes, count: int) -> None:
        "Compare the length and correlation id of `count` neighbouring answers with what is due."
        at, size, end = self.received % ring.size, ring.answer_size, count * ring.answer_size
        for byte, column in enumerate(ring.columns):
            if data[byte:end:size] != column[at:at + count]:
                raise WrongAnswer(self._describe_mismatch(ring, data, count))

    def _describe_mismatch(self, ring: Ring, data: bytes, count: int) -> str:
        for number in range(count):
            due = ring.prefixes[(self.received + number) % ring.size]
            came = data[number * ring.answer_size:][:8]
            if came != due:
                return ('(length, correlation_id) of an answer is '
                        f'{LENGTH_AND_CORRELATION_ID.unpack(came)}, due was {LENGTH_AND_CORRELATION_ID.unpack(due)}')
        return 'answers differ'

    def account(self, meter: Meter, count: int, now: float) -> None:
        "Note the latency of the oldest `count` requests in flight."
        times = self.times
        while count:
            oldest = times[0]
            part = min(count, oldest[1])
            meter.add(now - oldest[0], part)
            count -= part
            oldest[1] -= part
            if not oldest[1]:
                times.popleft()


class Load:
    "The loop: answers in, next requests out, until the time is over or the count is reached."

    def __init__(self, port: int, question: Question, connections: int, in_flight: int):
        if in_flight * 2 > RING:
            raise ValueError(f'at most {RING // 2} requests in flight')
        self.question, self.in_flight = question, in_flight
        self.connections = [Connection(port, question) for _ in range(connections)]
        sizes = {len(connection.first_answer) for connection in self.connections}
        if len(sizes) != 1:
            raise WrongAnswer(f'answers to the same request have different lengths: {sorted(sizes)}')
        self.ring = Ring(question, sizes.pop(), in_flight)
        self.meter = Meter()
        self.poller = select.epoll()
        self.by_descriptor = {}
        for connection in self.connections:
            self.by_descriptor[connection.socket.fileno()] = connection
            self.poller.register(connection.socket.fileno(), select.EPOLLIN)

    def start(self) -> None:
        "Fill every connection's window, each from another place of the ring, so that distinct requests stay distinct."
        for number, connection in enumerate(self.connections):
            connection.sent = connection.received = number * self.ring.size // len(self.connections)
            connection.send(self.ring, self.in_flight, time.perf_counter())

    def run(self, seconds: float, count: int | None = None) -> float:
        "Run for `seconds` (or until `count` answers have come); return the time it took."
        loop = self._run_single if self.in_flight == 1 else self._run_window
        began = time.perf_counter()
        loop(began + seconds, count or sys.maxsize)
        return time.perf_counter() - began

    def _run_single(self, deadline: float, count: int) -> None:
        "One request in flight on each connection: the leanest path, a request at a time."
        poll, clock = self.poller.poll, time.perf_counter
        requests, prefixes, size, room = self.ring.requests, self.ring.prefixes, self.ring.answer_size, self.ring.room
        latencies, by_descriptor, mask = self.meter.latencies, self.by_descriptor, self.ring.size - 1
        while clock() < deadline and len(latencies) < count:
            events = poll(SILENCE)
            if not events:
                raise WrongAnswer(f'no answer within {SILENCE} s')
            for descriptor, _ in events:
                connection = by_descriptor[descriptor]
                data = connection.recv(room)
                now = clock()
                if len(data) != size and (data := self._put_together(connection, data)) is None:
                    continue
                due = connection.received
                if not data.startswith(prefixes[due & mask]):
                    connection.verify(self.ring, data, 1)
                latencies.append(now - connection.sent_at)
                connection.last_answer, connection.received = data, due + 1
                connection.sent_at, connection.sent = now, due + 2
                connection.write(requests[due + 1 & mask])
        self.meter.counts = [1] * len(latencies)

    def _put_together(self, connection: Connection, data: bytes) -> bytes | None:
        "An answer that came in parts; None while it is not complete."
        if not data:
            raise WrongAnswer('the server closed the connection')
        data = connection.pending + data
        if len(data) < self.ring.answer_size:
            connection.pending = data
            return None
        connection.pending = b''
        if len(data) > self.ring.answer_size:
            raise WrongAnswer(f'{len(data)} bytes answer one request, {self.ring.answer_size} were due')
        return data

    def _run_window(self, deadline: float, count: int) -> None:
        "Many in flight: as many new requests go out, in one write, as answers came in with one read."
        clock, ring, meter, done = time.perf_counter, self.ring, self.meter, 0
        while clock() < deadline and done < count:
            events = self.poller.poll(SILENCE)
            if not events:
                raise WrongAnswer(f'no answer within {SILENCE} s')
            for descriptor, _ in events:
                connection = self.by_descriptor[descriptor]
                answered = connection.receive(ring)
                if answered:
                    now = clock()
                    connection.account(meter, answered, now)
                    connection.send(ring, answered, now)
                    done += answered
                elif connection.unsent:
                    connection.flush()

    def finish(self) -> None:
        "Collect what is still in flight, parse each connection's last answer, close."
        deadline = time.perf_counter() + SILENCE
        while any(connection.received < connection.sent for connection in self.connections):
            if time.perf_counter() > deadline:
                raise WrongAnswer(f'requests in flight were not answered within {SILENCE} s')
            for descriptor, _ in self.poller.poll(.1):
                connection = self.by_descriptor[descriptor]
                connection.receive(self.ring)
                if connection.unsent:
                    connection.flush()
        for connection in self.connections:
            self.question.check(connection.last_answer)

    def close(self) -> None:
        for connection in self.connections:
            connection.socket.close()
        self.poller.close()


def measure(port: int, question: Question, connections: int = 1, in_flight: int = 1, seconds: float = 2,
            count: int | None = None, warm_up: float = .1, pid: int | None = None) -> Result:
    "Warm up, then measure; with `pid`, also what the server spent."
    load = Load(port, question, connections, in_flight)
    try:
        load.start()
        gc.disable()
        load.run(warm_up)
        load.meter.reset()
        server_before, own_before = processes.cpu_seconds(pid) if pid else 0, time.process_time()
        elapsed = load.run(seconds, count)
        own_spent = time.process_time() - own_before
        server_spent = processes.cpu_seconds(pid) - server_before if pid else 0
        load.finish()
    finally:
        gc.enable()
        load.close()
    requests = load.meter.total
    p50, p99 = load.meter.quantiles(.5, .99)
    result = Result(requests, elapsed, requests / elapsed, p50, p99, load.ring.answer_size, own_spent / elapsed)
    if pid:
        result.server_cpu = server_spent / elapsed
        result.requests_per_cpu_second = requests / server_spent if server_spent else None
    return result


def question_of(options: argparse.Namespace) -> Question:
    "What the command line asks for."
    if options.requests:
        return wire.read_pool(options.requests)
    return wire.describe(options.topic, options.partitions, options.distinct) if options.topic else wire.api_versions()


def main() -> None:
    """Load a Kafka server on 127.0.0.1 with ApiVersions v4; with DescribeTopicPartitions v0 (--topic); or with
    --requests."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--port', type=int, required=True)
    parser.add_argument('--topic', help='ask for this topic instead of for ApiVersions')
    parser.add_argument('--partitions', type=int, default=1, help='how many partitions the topic has')
    parser.add_argument('--distinct', action='store_true', help='with --topic: no two requests alike')
    parser.add_argument('--requests', type=Path,
                        help='a file of Produce or Fetch requests, all of one size, to send in turn')
    parser.add_argument('--connections', type=int, default=1)
    parser.add_argument('--in-flight', type=int, default=1, help='requests under way on each connection')
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--count', type=int, help='stop after this many answers, if that is sooner')
    parser.add_argument('--warm-up', type=float, default=.1, help='seconds before the clock starts')
    parser.add_argument('--pid', type=int, help="the server's process, to report its processor time")
    parser.add_argument('--json', action='store_true', help='print the figures as JSON')
    options = parser.parse_args()
    result = measure(options.port, question_of(options), options.connections, options.in_flight, options.seconds,
                     options.count, options.warm_up, options.pid)
    if options.json:
        print(json.dumps(asdict(result)))
        return
    print(f'{result.rate:,.0f} requests/s  p50 {result.p50 * 1e6:,.0f} µs  p99 {result.p99 * 1e6:,.0f} µs  '
          f'({result.requests:,} in {result.seconds:.2f} s, load generator {result.load_cpu:.0%} of a core)')
    if result.requests_per_cpu_second:
        print(
            f'server: {result.server_cpu:.0%} of a core, {result.requests_per_cpu_second:,.0f} requests per CPU-second')


if __name__ == '__main__':
    main()
