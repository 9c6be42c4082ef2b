"""This broker under cProfile, from the signal SIGUSR1 on: what comes before (imports, codecs that are made when first
needed) isn't counted.

    python -m benchmarks.profiled OUTPUT server.properties
"""
import cProfile
import signal
import sys

from kafka_scratch.broker import server


def main() -> int:
    "Serve as `kafka_scratch.broker.server` does; when stopped, write the profile to OUTPUT, for `pstats`."
    output, *arguments = sys.argv[1:]
    profiler = cProfile.Profile()
    signal.signal(signal.SIGUSR1, lambda *_: profiler.enable())
    try:
        return server.main(arguments)
    finally:
        profiler.disable()
        profiler.dump_stats(output)


if __name__ == '__main__':
    sys.exit(main())
