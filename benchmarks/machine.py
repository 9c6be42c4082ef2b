"""What the figures were measured on, in a sentence."""
import os
import platform
import re
import resource
import time
from importlib import metadata
from pathlib import Path


def describe() -> str:
    "`Measured on 2 cores of ..., Linux ..., Python 3.11.7, uvloop ..., crc32c ...`."
    packages = ', '.join(f'{package} {version(package)}' for package in ('uvloop', 'crc32c'))
    return (f'Measured on {os.cpu_count()} cores ({processor()}), {memory():.0f} GB, {platform.system()} '
            f'{platform.release()}, {platform.python_implementation()} {platform.python_version()}, {packages}.')


def processor() -> str:
    "The processor's own name for itself."
    found = re.search(r'model name\s*: (.*)', Path('/proc/cpuinfo').read_text())
    return found[1] if found else platform.machine()


def memory() -> float:
    "Main memory in gigabytes."
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9


def version(package: str) -> str:
    "The installed version of a package, or `absent`."
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return 'absent'


def need(*packages: str) -> None:
    "End with a sentence unless all these packages are installed."
    if missing := [package for package in packages if version(package) == 'absent']:
        raise SystemExit(f'This benchmark needs {" and ".join(missing)}: pip install {" ".join(missing)}')


class Neighbours:
    "How much of the machine went to others between the making of this object and `describe`."

    def __init__(self):
        self.began, self.before, self.own_before = time.monotonic(), _machine_seconds(), _own_seconds()

    def describe(self) -> str:
        "A sentence for the report. Children count as our own once they have ended."
        busy, stolen = (now - then for now, then in zip(_machine_seconds(), self.before))
        all_cores = (time.monotonic() - self.began) * os.cpu_count()
        others = max(busy - (_own_seconds() - self.own_before), 0)
        return (f'While this ran, other processes took {others / all_cores:.0%} of the machine, and the host withheld '
                f'{stolen / all_cores:.0%}.')

    def withheld(self) -> str:
        "The same where children go on running, so that nobody can say who is another."
        stolen, all_cores = _machine_seconds()[1] - self.before[1], (time.monotonic() - self.began) * os.cpu_count()
        return f'While this ran, the host withheld {stolen / all_cores:.0%} of the machine.'


def _machine_seconds() -> tuple[float, float]:
    "Processor time of everything on this machine: (used, stolen by the host)."
    user, nice, system, _, _, irq, softirq, stolen = map(int, Path('/proc/stat').read_text().split()[1:9])
    ticks = os.sysconf('SC_CLK_TCK')
    return (user + nice + system + irq + softirq) / ticks, stolen / ticks


def _own_seconds() -> float:
    "Processor time of this process and of its children that have ended."
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
