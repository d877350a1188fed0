"""Installs the packages of a lock and says which, as it goes: ``python .ci/install.py requirements.txt``.

Options of pip may follow. Without any, it also installs the command ``crawlproj`` and the library, which stay
where they are. With ``--uv`` first, uv installs them, in seconds where pip takes a minute; it is pinned
in the dev lock. Where it fails, as with an index only pip has the password of, pip does it.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import deque
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

PIN = re.compile(r"^[a-z0-9][^\\\n]*", re.MULTILINE)
#: What pip prints of a package: from an index, from a file, and how large it is.
COLLECTING = re.compile(r"Collecting ([\w.-]+)==(\S+)|Processing .*/([\w.]+?)-([^-/]+)-[^/]*\.whl")
SIZE = re.compile(r"\s+(?:Downloading|Using cached) \S+ \((.+)\)")
PROJECT = Path(__file__).resolve().parents[1]
#: -P: where it is started, a file may have the name of a module.
COMMAND = """\
#!/bin/sh
exec "$(dirname "$0")/python" -P -m crawlproj "$@"
"""
UV = Path(sysconfig.get_path("scripts"), "uv")
UV_PIN = re.compile(r"^uv==.*\n(?:    --hash.*\n)+", re.MULTILINE)
PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off")


def main(*arguments: str) -> int:
    with_uv = arguments[0] == "--uv"
    lock, *options = arguments[with_uv:]
    pins = map(Requirement, PIN.findall(Path(lock).read_text()))
    total = sum(pin.marker is None or pin.marker.evaluate() for pin in pins)
    packages = "1 package" if total == 1 else f"{total} packages"
    say(f"Installing {packages} of {lock}; those that are here already are kept.", end="")
    started_s = time.monotonic()
    if with_uv and install_with_uv(lock, *options):
        if not options:
            link_project()
        say(f"Installed after {time.monotonic() - started_s:.0f} s.")
        return 0
    last_lines: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        [sys.executable, *PIP, "--require-hashes", *options, "-r", lock],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        count = 0
        for line in process.stdout or ():
            last_lines.append(line)
            if found := COLLECTING.match(line):
                count += 1
                name, version = found[1] or found[3], found[2] or found[4]
                say(f"\n{count:>5} {name} {version}", end="")
            elif found := SIZE.match(line):
                say(f", {found[1]}", end="")
            elif line.startswith("Installing collected"):
                say(f"\nFound all after {time.monotonic() - started_s:.0f} s; unpacking ...", end="")
    if process.returncode:
        say("\n" + "".join(last_lines))
    else:
        if not options:
            link_project()
        say(f"\nInstalled after {time.monotonic() - started_s:.0f} s.")
    return process.returncode


def install_with_uv(lock: str, *options: str) -> bool:
    """Return whether uv has installed *lock*."""
    if not has_uv(lock):
        return False
    say("")
    # uv does not read the configuration of pip.
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found = re.search(r"\.index-url='(.+)'", pip.stdout)
    install = [UV, "pip", "install", "--no-config", "--require-hashes", "--python", sys.executable, *options]
    environment = os.environ | ({"UV_DEFAULT_INDEX": found[1]} if found else {})
    done = subprocess.run([*install, "-r", lock], env=environment, check=False)
    if done.returncode:
        say("uv could not install them; pip tries.", end="")
    return not done.returncode


def has_uv(lock: str) -> bool:
    """Return whether uv is here, installed from its pin in *lock* or in the dev lock if need be."""
    locks = [Path(lock), PROJECT / "requirements-dev.txt"]
    pin = next(filter(None, (UV_PIN.search(one.read_text()) for one in locks if one.exists())), None)
    if pin and not UV.exists():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(pin[0].rstrip().rstrip("\\") + "\n")
            file.flush()
            options = ("--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", file.name)
            # Where it fails, pip says why when it installs the rest.
            subprocess.run([sys.executable, *PIP, *options], capture_output=True, check=False)
    return UV.exists()


def link_project() -> None:
    Path(sysconfig.get_path("purelib"), "crawlproj.pth").write_text(f"{PROJECT}\n")
    command = Path(sysconfig.get_path("scripts"), "crawlproj")
    command.write_text(COMMAND)
    command.chmod(0o755)


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        # What is here already is kept by the next `make`.
        sys.exit(130)
