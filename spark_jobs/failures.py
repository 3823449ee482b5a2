"""What went wrong, in a line a person can read; and how one job's failure is kept from ending the others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.lake import AlreadyIngestingError

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES: Final = (ValueError, OSError, AlreadyIngestingError, PySparkException, Py4JError)
"""What a person can do something about: a file that cannot be used, a full disk, a Spark that is gone."""
_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception): .+)$", re.MULTILINE)
LONGEST: Final = 400


def brief(error: BaseException) -> str:
    """Why something failed, without the paths it took through Spark: the last exception that a worker or Java names."""
    said = str(error)
    if isinstance(error, PySparkException | Py4JError):
        raised = _RAISED.findall(said)
        said = raised[-1] if raised else said.strip().partition("\n")[0]
    return (said or type(error).__name__)[:LONGEST]


def attempt(what: str, work: Callable[[], object], say: Callable[[str], None]) -> bool:
    """Do something and say what came of it; whether it succeeded. Where it fails that is said, and the rest goes on."""
    try:
        said = f"{what}: {work()}"
    except FAILURES as error:
        said = f"{what} failed, everything else goes on: {brief(error)}"
        say(said)
        return False
    say(said)
    return True
