"""SQL over the stored pages, answered by DuckDB from the Parquet files. Reads them and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from crawlproj.errors import BadArgument
from crawlproj.storage.parquet import ParquetSink

#: Nothing is fetched from the net, and no variable of this program can be asked for as a table.
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}


class Answer:
    """The rows that answer *sql*, which sees committed pages as the table ``pages``.

    Raises BadArgument, in one line, for what is no SELECT or cannot be answered.
    """

    def __init__(self, directory: Path, sql: str) -> None:
        self.files = sorted(path.resolve() for path in directory.glob("*" + ParquetSink.suffix))
        if not self.files:
            raise BadArgument(
                f"{directory} holds no Parquet file, and SQL needs them. Crawl with PAGE_STORE=parquet "
                "(or parquet,warc), or leave out --query."
            )
        try:
            connection = _connect(self.files)
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise BadArgument("--query takes one SELECT, such as: SELECT count(*) FROM pages")
            self._relation = connection.sql(sql)
        except duckdb.Error as exc:
            raise _complaint(exc) from None
        self.columns = _distinct(self._relation.columns)

    def rows(self) -> Iterator[dict[str, Any]]:
        try:
            for batch in self._relation.to_arrow_reader():
                yield from batch.rename_columns(self.columns).to_pylist(maps_as_pydicts="strict")
        except duckdb.Error as exc:
            raise _complaint(exc) from None


def _connect(files: list[Path]) -> duckdb.DuckDBPyConnection:
    """Return a connection that can read *files* and has no other way out."""
    names = ", ".join("'{}'".format(str(path).replace("'", "''")) for path in files)
    connection = duckdb.connect(":memory:", config=_CLOSED)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW pages AS SELECT * FROM read_parquet([{names}], union_by_name = true)")
    connection.execute(f"SET allowed_paths = [{names}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _distinct(names: list[str]) -> list[str]:
    """Return *names* with a number behind those that came before: a SELECT may give two columns one name."""
    distinct: list[str] = []
    for name in names:
        fresh, number = name, 2
        while fresh in distinct:
            fresh, number = f"{name}_{number}", number + 1
        distinct.append(fresh)
    return distinct


def _complaint(error: duckdb.Error) -> BadArgument:
    # Below an empty line DuckDB repeats the query and points at the place.
    return BadArgument(" ".join(str(error).partition("\n\n")[0].split()))
