"""One text, two databases."""

import sqlite3

from batchfleet.database.statements import fragment, records, sql


def test_parameters_and_casts_survive_the_translation() -> None:
    statement = sql("SELECT :a, x::text, '50%', :block WHERE b = :b_1")

    assert statement.sqlite == "SELECT :a, x::text, '50%', :block WHERE b = :b_1"
    assert statement.postgresql == "SELECT %(a)s, x::text, '50%%', %(block)b WHERE b = %(b_1)s"


def test_fragments_differ_by_database() -> None:
    statement = sql("SELECT 1 FROM t WHERE id {in_ids} AND {mine} {skip_locked}", mine=fragment("{state} = :a"))

    assert "json_each(:ids)" in statement.of("sqlite")
    assert "+state = :a" in statement.of("sqlite")
    assert statement.of("postgresql").endswith("AND state || '' = %(a)s FOR UPDATE SKIP LOCKED")


def test_rows_come_out_as_they_went_in() -> None:
    statement = sql("SELECT r.a, r.b, r.c FROM {rows}", rows=records("r", a="text", b="bigint", c="float8"))
    parameter = '[["x é 🚀 \\"", 9223372036854775807, null], ["", -1, 0.5]]'

    with sqlite3.connect(":memory:") as connection:
        rows = connection.execute(statement.sqlite, {"rows": parameter}).fetchall()
    connection.close()

    assert rows == [('x é 🚀 "', 2**63 - 1, None), ("", -1, 0.5)]
