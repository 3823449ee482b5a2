"""`scripts/system-packages` on machines that have this and lack that: the path has only what a test puts there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "system-packages"


class Machine:
    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.asked = directory / "asked"
        self.asked.touch()
        for tool in ("bash", "env", "sed"):
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)

    def has(self, name: str, script: str = "exit 0") -> None:
        program = self.bin / name
        program.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        program.chmod(0o755)

    def is_roots(self, user: int = 0) -> None:
        self.has("id", f"echo {user}")

    def has_apt(self, *, works: bool = True) -> None:
        self.has("apt-get", f'echo "$*" >> {self.asked}\nexit {0 if works else 100}')
        self.has("apt-cache", "exit 0")

    def run(self, *words: str) -> tuple[int, str]:
        environment = {"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")}
        done = subprocess.run(
            [str(self.bin / "bash"), str(SCRIPT), *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    @property
    def installed(self) -> str:
        return " ".join(line for line in self.asked.read_text().splitlines() if line.startswith("install"))


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_root_with_apt_gets_java_for_the_demonstration(machine):
    machine.is_roots()
    machine.has_apt()
    code, said = machine.run("demo")
    assert code == 0
    assert "Installing openjdk-17-jre-headless" in said
    assert machine.installed.endswith("--no-install-recommends openjdk-17-jre-headless")


@pytest.mark.parametrize(("version", "needed"), [("1.8.0_392", True), ("11.0.2", True), ("17.0.15", False)])
def test_an_old_java_does_not_do(machine, version, needed):
    machine.is_roots()
    machine.has_apt()
    machine.has("java", f"echo 'openjdk version \"{version}\" 2025' >&2")
    assert machine.run("demo")[0] == 0
    assert ("openjdk" in machine.installed) == needed


def test_others_are_told_what_to_install_and_go_on(machine):
    machine.is_roots(1000)
    machine.has_apt()
    code, said = machine.run("demo")
    assert code == 0
    assert said == (
        "Missing: openjdk-17-jre-headless. The demonstration runs without Spark until then. "
        "Install with: sudo apt-get install openjdk-17-jre-headless\n"
    )
    assert machine.installed == ""


def test_an_installation_that_fails_does_not_stop_the_demonstration(machine):
    machine.is_roots()
    machine.has_apt(works=False)
    code, said = machine.run("demo")
    assert code == 0
    assert "The demonstration runs without Spark until then." in said


def test_the_tests_get_peers_and_a_browser(machine):
    machine.is_roots()
    machine.has_apt()
    machine.has("java", "echo 'openjdk version \"21.0.2\" 2024' >&2")
    machine.has("mosquitto")
    assert machine.run("test")[0] == 0
    assert machine.installed.endswith("mosquitto-clients openssl chromium")


def test_nothing_is_done_where_nothing_is_missing(machine):
    machine.is_roots()
    machine.has_apt()
    for name in ("mosquitto", "mosquitto_pub", "openssl", "chromium"):
        machine.has(name)
    machine.has("java", "echo 'openjdk version \"21.0.2\" 2024' >&2")
    assert machine.run("test") == (0, "")
    assert machine.asked.read_text() == ""


def test_a_python_that_cannot_make_environments_is_mended_or_named(machine):
    machine.is_roots(1000)
    assert machine.run("venv", sys.executable) == (0, "")
    machine.has("python3", 'case "$2" in *ensurepip*) exit 1;; *) echo python3.11-venv;; esac')
    code, said = machine.run("venv", "python3")
    assert code == 1
    assert said.startswith("python3 cannot make virtual environments: sudo apt-get install python3.11-venv")
    machine.is_roots()
    machine.has_apt()
    assert machine.run("venv", "python3")[0] == 0
    assert machine.installed.endswith("python3.11-venv")
