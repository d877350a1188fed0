"""`make` says which packages it installs: .ci/install.py, with a wheel made here and no index."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "install.py"
FILES = {
    "tiny.py": "",
    "tiny-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.2\n",
    "tiny-1.2.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.2.dist-info/RECORD": "",
}


def install(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    lock = folder / "lock.txt"
    lock.write_text(
        f'absent==9.9 ; python_version < "3" \\\n    --hash=sha256:{"0" * 64}\n'
        f"tiny==1.2 \\\n    --hash=sha256:{digest}\n    # via nobody\n"
    )
    options = ("--no-index", "--find-links", str(folder), "--target", str(folder / "here"), "--no-cache-dir")
    return subprocess.run(
        [sys.executable, SCRIPT, lock, *options], capture_output=True, text=True, check=False
    )


def wheel_in(folder: Path) -> str:
    wheel = folder / "tiny-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_each_package_is_named_as_it_is_installed(tmp_path: Path) -> None:
    done = install(tmp_path, wheel_in(tmp_path))

    assert done.returncode == 0, done.stdout
    first, *lines = done.stdout.splitlines()
    assert first.startswith("Installing 1 package of")
    assert lines[0].split() == ["1", "tiny", "1.2"]
    assert lines[-1].startswith("Installed after")
    assert (tmp_path / "here" / "tiny.py").exists()


def test_what_pip_refuses_is_shown_and_ends_make(tmp_path: Path) -> None:
    wheel_in(tmp_path)

    done = install(tmp_path, "0" * 64)

    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stdout
    assert not (tmp_path / "here").exists()
