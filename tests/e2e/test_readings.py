"""Ten readings of four sensors, as ksqlDB's users write it."""

from __future__ import annotations

from decimal import Decimal

import pytest

pytestmark = pytest.mark.spark

CREATE = """CREATE STREAM readings ( sensor VARCHAR KEY, area VARCHAR, reading INT )
    WITH ( kafka_topic = 'readings', partitions = 2, value_format = 'json' );"""
READINGS = [
    ("sensor-1", "wheel", 45),
    ("sensor-2", "motor", 41),
    ("sensor-1", "wheel", 92),
    ("sensor-2", "engine", 13),
    ("sensor-2", "engine", 90),
    ("sensor-4", "motor", 95),
    ("sensor-3", "engine", 67),
    ("sensor-3", "wheel", 52),
    ("sensor-4", "engine", 55),
    ("sensor-3", "engine", 37),
]
AVERAGES = {"sensor-1": 68.5, "sensor-2": 48, "sensor-3": 52, "sensor-4": 75}
BY_AREA = {"wheel": 63, "motor": 68, "engine": 52.4}


def insert(db, sensor, area, reading):
    db.sql(
        f"INSERT INTO readings (sensor, area, reading) VALUES ('{sensor}', '{area}', {reading});"
    )


def averages(db, name):
    return {key: round(Decimal(value), 6) for key, value in db.sql(f"SELECT * FROM {name}")}


@pytest.mark.long
@pytest.mark.parametrize("emit", ["", " EMIT CHANGES"])
def test_averages_of_ten_readings(db, emit):
    db.sql(CREATE)
    db.sql("SET 'auto.offset.reset' = 'earliest';")
    for reading in READINGS[:4]:
        insert(db, *reading)
    db.sql(
        "CREATE TABLE avg_readings AS SELECT sensor, AVG(reading) AS avg "
        f"FROM readings GROUP BY sensor{emit};"
    )
    db.sql(
        "CREATE TABLE avg_by_area AS SELECT area, AVG(reading) AS avg "
        f"FROM readings GROUP BY area{emit};"
    )
    for reading in READINGS[4:]:
        insert(db, *reading)
    assert averages(db, "avg_readings") == {k: Decimal(str(v)) for k, v in AVERAGES.items()}
    assert averages(db, "avg_by_area") == {k: Decimal(str(v)) for k, v in BY_AREA.items()}
    assert db.sql("SELECT * FROM avg_readings WHERE sensor='sensor-1';").fetchall() == [
        ("sensor-1", 68.5)
    ]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
    assert sorted(db.sql("SELECT * FROM readings;")) == sorted(READINGS)
    assert sorted(db.sql("SELECT * FROM readings WHERE sensor='sensor-1';")) == [
        ("sensor-1", "wheel", 45),
        ("sensor-1", "wheel", 92),
    ]


@pytest.mark.long
def test_averages_are_pushed_as_the_readings_arrive(db):
    db.sql(CREATE)
    db.sql(
        "CREATE TABLE avg_readings AS SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor"
    )
    pushed = db.sql("SELECT * FROM avg_readings WHERE sensor='sensor-1' EMIT CHANGES;")
    rows = db.sql("SELECT * FROM readings EMIT CHANGES;")
    ours = db.sql("SELECT * FROM readings WHERE sensor='sensor-1' EMIT CHANGES;")
    assert pushed.poll() == rows.poll() == ours.poll() == []
    found, listed, mine = [], [], []
    for reading in READINGS:
        insert(db, *reading)
        db.flush()
        found += pushed.poll()
        listed += rows.poll()
        mine += ours.poll()
    operations = [(change.operation, change.row["avg"]) for change in found]
    assert operations == [("+I", 45.0), ("-U", 45.0), ("+U", 68.5)]
    assert [tuple(change.row.values()) for change in listed] == READINGS
    assert [tuple(change.row.values()) for change in mine] == [READINGS[0], READINGS[2]]
    for subscription in (pushed, rows, ours):
        subscription.close()
