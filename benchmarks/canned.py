"""The limit: a uvloop server that gives every request the same prepared answer.

It does the least a Kafka server in Python can honestly do: split the stream on the length prefix, put each request's
correlation id into a copy of the answer, and write once per read. No header is parsed, no API looked at.

    python -m benchmarks.canned --port 9093 --answer answer.bin
"""
import argparse
import asyncio
from pathlib import Path

import uvloop


class Canned(asyncio.Protocol):
    "One connection."

    def __init__(self, answer: bytes):
        self.length, self.body = answer[:4], answer[8:]
        self.pending = b''

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        if not self.pending and len(data) == 4 + int.from_bytes(data[:4], 'big'):  # one whole request: the usual case
            self.write(self.length + data[8:12] + self.body)
        else:
            self.split(self.pending + data)

    def split(self, data: bytes) -> None:
        "Answer every whole request, keep the rest."
        length, body, at, end, parts = self.length, self.body, 0, len(data), []
        while end - at >= 12:
            after = at + 4 + int.from_bytes(data[at:at + 4], 'big')
            if after > end:
                break
            parts += length, data[at + 8:at + 12], body
            at = after
        self.pending = data[at:]
        if parts:
            self.write(b''.join(parts))


async def serve(port: int, answer: bytes) -> None:
    "Answer on 127.0.0.1:port until the process is stopped."
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Canned(answer), '127.0.0.1', port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    "Give every request on 127.0.0.1:PORT the same answer, with its own correlation id."
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--port', type=int, required=True)
    parser.add_argument('--answer', type=Path, required=True, help='a file with one whole answer frame')
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.answer.read_bytes()))


if __name__ == '__main__':
    main()
