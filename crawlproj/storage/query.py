"""SQL over the stored pages, with DuckDB. Reads their Parquet files and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]

from crawlproj.errors import BadArgument
from crawlproj.storage.parquet import ParquetSink, has_field_list, without_maps

#: No downloads, and no access to Python variables as tables.
_SANDBOX: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}


class QueryResult:
    """The rows of *sql*, a SELECT over the table ``pages`` of committed pages.

    Raises BadArgument, in one line, for any other statement and for errors in it.
    """

    def __init__(self, directory: Path, sql: str) -> None:
        self.files = sorted(directory.resolve().glob("*" + ParquetSink.suffix))
        if not self.files:
            raise BadArgument(
                f"{directory} has no Parquet files, which --query needs. Crawl with PAGE_STORE=parquet "
                "(or parquet,warc), or leave out --query."
            )
        try:
            connection = connect(self.files)
            connection.execute(f"SET allowed_paths = {_sql_list(self.files)}")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise BadArgument("--query must be one SELECT, such as: SELECT count(*) FROM pages")
            self._relation = connection.sql(sql)
        except duckdb.Error as exc:
            raise BadArgument(message_of(exc)) from None
        self.columns = _distinct(self._relation.columns)

    def schema(self) -> pa.Schema:
        """Return the types of the columns, as every tool reads them from Parquet."""
        schema = self._relation.limit(0).to_arrow_table().schema
        return without_maps(
            pa.schema([f.with_name(name) for f, name in zip(schema, self.columns, strict=True)])
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        try:
            for batch in self._relation.to_arrow_reader():
                yield from batch.rename_columns(self.columns).to_pylist(maps_as_pydicts="strict")
        except duckdb.Error as exc:
            raise BadArgument(message_of(exc)) from None


def connect(files: Sequence[Path], select: str = "*", **options: str) -> duckdb.DuckDBPyConnection:
    """Return a connection with the rows of *files* as the table ``pages``; *options* are DuckDB's."""
    connection = duckdb.connect(":memory:", config=_SANDBOX | options)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW pages AS SELECT {select} FROM ({_rows_of(files)})")
    return connection


def _rows_of(files: Sequence[Path]) -> str:
    """Return the SELECT of all rows, with `fields` as a map in old files and new."""
    lists = [file for file in files if has_field_list(file)]
    known = set(lists)
    maps = [file for file in files if file not in known]
    return " UNION ALL BY NAME ".join(
        f"SELECT {select} FROM read_parquet({_sql_list(chosen)}, union_by_name = true)"
        for select, chosen in (("* REPLACE (map_from_entries(fields) AS fields)", lists), ("*", maps))
        if chosen
    )


def _sql_list(files: Iterable[Path]) -> str:
    return "[{}]".format(", ".join("'{}'".format(str(path).replace("'", "''")) for path in files))


def _distinct(names: list[str]) -> list[str]:
    """Return *names* with numbers appended to duplicates: a SELECT may name two columns the same."""
    distinct: list[str] = []
    for name in names:
        fresh, number = name, 2
        while fresh in distinct:
            fresh, number = f"{name}_{number}", number + 1
        distinct.append(fresh)
    return distinct


def message_of(error: duckdb.Error) -> str:
    # After an empty line DuckDB repeats the query.
    return " ".join(str(error).partition("\n\n")[0].split())
