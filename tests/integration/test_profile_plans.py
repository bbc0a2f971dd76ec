"""What is known of a key is reached by the key, on both databases, whatever a planner believes of the tables' size."""

from functools import partial
from pathlib import Path

import pytest

from batchfleet.database.opening import open_database
from batchfleet.database.statements import Sql
from batchfleet.database.transaction import Parameters, Row, Transaction
from batchfleet.profiles import sql as statements
from tests.support.stores import SHARED_KINDS, open_bench

OF_KEY = {
    "costs": (statements._COSTS, "pass_costs"),
    "rate": (statements._RATE, "device_rates"),
    "ceilings": (statements._CEILINGS, "memory_ceilings"),
    "drop ceilings": (statements._DROP_CEILINGS, "memory_ceilings"),
    "purge costs": (statements._PURGE_OF_KEY[0], "pass_costs"),
    "purge ceilings": (statements._PURGE_OF_KEY[1], "memory_ceilings"),
}
KEY: Parameters = {"model": "m", "version": "1", "variant": "v", "device": "d"}


def _rows(statement: Sql, tx: Transaction) -> list[Row]:
    return tx.rows(statement, KEY)


@pytest.mark.parametrize("kind", SHARED_KINDS)
def test_rows_of_a_key_are_reached_by_the_key(kind: str, tmp_path: Path) -> None:
    with open_bench(kind, tmp_path) as bench:
        database = open_database(bench.url)
        for name, (statement, table) in OF_KEY.items():
            explained = Sql(f"EXPLAIN QUERY PLAN {statement.sqlite}", f"EXPLAIN {statement.postgresql}")
            text = "\n".join(str(row[-1]) for row in database.read(partial(_rows, explained)))
            if kind == "sqlite":
                by_key = f"{table} USING PRIMARY KEY (model=? AND version=? AND variant=? AND device=?)"
                assert f"SEARCH {by_key}" in text, name
                assert "TEMP B-TREE" not in text, name
            else:
                assert f"{table}_pkey" in text, (name, text)
                assert all(f"({column} = " in text for column in KEY), (name, text)
                assert "Seq Scan" not in text, (name, text)
        database.close()
