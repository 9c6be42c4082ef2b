"""What the figures were measured on, in a sentence."""
import os
import platform
import re
from importlib import metadata
from pathlib import Path


def describe() -> str:
    "`Measured on 2 cores of ..., Linux ..., Python 3.11.7, uvloop ..., crc32c ...`."
    return (f'Measured on {os.cpu_count()} cores ({processor()}), {memory():.0f} GB, {platform.system()} {platform.release()}, '
            f'{platform.python_implementation()} {platform.python_version()}, uvloop {version("uvloop")}, crc32c {version("crc32c")}.')


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
