import pytest


@pytest.fixture(scope="session")
def spark():
    """One session per run: starting the JVM costs more than most tests."""
    from happened.spark.session import session

    spark = session("local[2]")
    yield spark
    spark.stop()
