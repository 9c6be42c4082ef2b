"Frames of `fixtures/wire`, and whether an explanation of one is complete."
from pathlib import Path

from kafka_scratch.wire.frames import FrameReader
from kafka_scratch.wire.primitives import Int32

WIRE = Path(__file__).parents[1]/'fixtures'/'wire'


def frames_of(text: str | None) -> list[bytes]:
    "The frames in hexadecimal text, each with its length."
    return [Int32.write(len(frame)) + frame for frame in FrameReader().feed(bytes.fromhex(text or ''))]


def spans_touch(explanation) -> bool:
    "Do the spans cover all bytes from the first to the end of the explanation, without gap or overlap?"
    ends = [0, *(span.offset + span.length for span in explanation.spans)]
    return [span.offset for span in explanation.spans] == ends[:-1] and ends[-1] == explanation.end
