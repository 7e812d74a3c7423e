"""Numbers and moments of every type that tables have: taken exactly, or quarantined or refused by name."""

from decimal import Decimal

import pytest

import happened.spark as hs
from happened.core.errors import TraceFormatError
from happened.spark.event_rows import UNREADABLE, as_events

EVENT = "'p' as process, 1L as seq, 'internal' as kind"


@pytest.mark.parametrize("kind", ["decimal(10,0)", "decimal(38,0)", "decimal(38,10)", "decimal(20,2)"])
def test_whole_decimals_are_integers(spark, kind):
    frame = spark.sql(f"""
        select 'p' as process, cast(n as {kind}) as seq, 'internal' as kind, cast(n * 1000 as {kind}) as time,
            if(n = 2, array(named_struct('process', 'p', 'seq', cast(1 as {kind}))), null) as causes,
            map('p', cast(n as {kind})) as clock
        from values (1), (2) as t(n)
    """)
    rows = sorted(as_events(frame).collect(), key=lambda row: row.seq)
    assert [(row.seq, row.time, row.clock) for row in rows] == [(1, 1000, {"p": 1}), (2, 2000, {"p": 2})]
    assert [cause.seq for cause in rows[1].causes] == [1]
    with hs.analyze(frame, questions=["stamp", "verify-clocks"]) as analysis:
        assert sorted(row.seq for row in analysis.stamps.collect()) == [1, 2]
        assert analysis.clocks.count() == analysis.summary()["quarantined"] == 0


def test_numbers_that_would_be_rounded_are_quarantined_with_the_reason(spark):
    huge = 2**63
    frame = spark.createDataFrame(
        [
            ("a", Decimal(1), None, None),
            ("b", Decimal("1.5"), None, None),
            ("c", Decimal(huge), None, None),
            ("d", Decimal(1), Decimal(-huge - 1), None),
            ("e", Decimal(1), None, {"e": Decimal("0.5")}),
            ("f", Decimal(1), Decimal(-huge), {"f": Decimal(1)}),
        ],
        "process string, seq decimal(25,3), time decimal(19,0), clock map<string, decimal(5,1)>",
    ).selectExpr("*", "process as computation", "'internal' as kind")
    with hs.analyze(frame, questions=["stamp"]) as analysis:
        assert sorted(row.computation for row in analysis.stamps.collect()) == ["a", "f"]
        assert {row.reason for row in analysis.quarantine.collect()} == {
            "seq 1.500 is no integer of 64 bits",
            f"seq {huge}.000 is no integer of 64 bits",
            f"time {-huge - 1} is no integer of 64 bits",
            "clock {e -> 0.5} is no integer of 64 bits",
        }
    (smallest,) = as_events(frame.where("process = 'f'")).collect()
    assert smallest.time == -huge and smallest[UNREADABLE] is None


def test_a_decimal_that_always_fits_needs_no_look(spark):
    assert UNREADABLE not in as_events(spark.sql(f"select {EVENT.replace('1L', '1BD')}")).columns


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_timestamps_with_and_without_a_zone_are_nanoseconds(spark, setting, zone):
    setting("spark.sql.session.timeZone", zone)
    moments = spark.sql(
        f"select {EVENT}, timestamp'2024-03-10 02:30:00.000001 UTC' as ltz, "
        "timestamp_ntz'2024-03-10 02:30:00.000001' as ntz, timestamp_ntz'1969-12-31 23:59:59.5' as early"
    )
    times = [as_events(moments, {"time": name}).first().time for name in ("ltz", "ntz", "early")]
    assert times == [1710037800000001000, 1710037800000001000, -500_000_000]


@pytest.mark.parametrize(
    "column, said",
    [
        ("interval '1' day as time", "interval day, needs bigint, nanoseconds, or a timestamp"),
        ("interval '3' month as time", "interval month"),
        ("date'2024-01-01' as time", "date, needs bigint, nanoseconds, or a timestamp; cast it"),
        ("'2024-01-01' as time", "string"),
        ("1.5D as seq", "double, needs bigint; cast it"),
        ("'1' as seq", "string, needs bigint"),
        ("1.5BD as process", r"decimal\(2,1\), needs string"),
    ],
)
def test_a_type_that_would_have_to_be_interpreted_is_refused_by_name(spark, column, said):
    name = column.split()[-1]
    columns = [each for each in EVENT.split(", ") if not each.endswith(f" {name}")]
    with pytest.raises(TraceFormatError, match=rf"^field '{name}': is {said}"):
        as_events(spark.sql(f"select {', '.join([*columns, column])}"))
