from __future__ import annotations

import os
import signal
import subprocess
import sys

from clients.demo import guardian

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)
WILLING = "import time; print('ready', flush=True); time.sleep(600)"


def started(program):
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_group_is_asked_to_end():
    process = started(WILLING)
    assert guardian.alive(process.pid)
    guardian.end([process.pid], 60.0)
    assert process.wait(60) == -signal.SIGTERM
    assert not guardian.alive(process.pid)


def test_a_group_that_does_not_listen_is_killed():
    process = started(STUBBORN)
    guardian.end([process.pid], 0.5)
    assert process.wait(60) == -signal.SIGKILL


def test_a_zombie_does_not_count_as_alive():
    process = started(WILLING)
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, but nobody has taken note
    assert not guardian.alive(process.pid)
    process.wait()


def test_a_group_that_is_gone_is_no_trouble():
    process = started(WILLING)
    process.kill()
    process.wait()
    guardian.end([process.pid], 60.0)


def test_the_program_ends_what_it_was_told_when_its_input_ends(tmp_path):
    kept, ended = started(WILLING), started(WILLING)
    (tmp_path / "data").mkdir()
    told = f"+{kept.pid}\n+{ended.pid}\n-{kept.pid}\ntidy {tmp_path / 'data'}\n"
    command = [sys.executable, "-I", "-S", guardian.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as program:
        program.communicate(told, timeout=90)
    assert ended.wait(60) == -signal.SIGTERM
    assert kept.poll() is None
    assert not (tmp_path / "data").exists()
    kept.kill()
    kept.wait()
