"""What Spark's Python workers do besides the work."""

import gc

from happened.spark.tasks import on_tasks


def test_the_collector_does_not_look_at_what_is_imported(spark):
    """Spark collects garbage after every task; what that looks at is what the next task finds unfrozen."""

    def objects(number):
        import numba  # noqa: F401  # thousands of objects
        import pyarrow  # noqa: F401

        return gc.get_freeze_count(), len(gc.get_objects())

    on_tasks(spark, 4, objects)
    for frozen, looked_at in on_tasks(spark, 4, objects):
        assert frozen > 5 * looked_at
