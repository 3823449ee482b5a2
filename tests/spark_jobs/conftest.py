from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.session import build_session, java_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of one worker; `xdist_group("spark")` puts them all into the same one."""
    if java_path() is None:
        pytest.skip("Spark needs Java: apt-get install openjdk-17-jre-headless")
    session = build_session("tests", "local[2]")
    yield session
    session.stop()
