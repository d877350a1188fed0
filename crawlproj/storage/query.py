"""SQL over the stored pages, with DuckDB. Reads their Parquet files and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from crawlproj.errors import BadArgument
from crawlproj.storage.objects import Place, StorePath
from crawlproj.storage.parquet import SCHEMA, ParquetSink, has_field_list, without_maps
from crawlproj.storage.reader import Places, committed_files

#: No downloads, and no access to Python variables as tables.
_SANDBOX: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}


_FIELDS_AS_MAP = "* REPLACE (map_from_entries(fields) AS fields)"


class QueryResult:
    """The rows of *sql*, a SELECT over the table ``pages`` of committed pages.

    Raises BadArgument, in one line, for any other statement and for errors in it.
    """

    def __init__(self, directory: Places, sql: str) -> None:
        self._directory, self._sql = directory, sql
        self._relation = self._prepare()
        self.columns = _distinct(self._relation.columns)

    def _prepare(self) -> duckdb.DuckDBPyRelation:
        found = committed_files(self._directory)
        self.files = [path for path, sink in found if sink is ParquetSink]
        if not self.files:
            where = found[0][0].parent if found else self._directory
            raise BadArgument(
                f"{where} has no Parquet files, which --query needs. Crawl with PAGE_STORE=parquet "
                "(or parquet,warc), or leave out --query."
            )
        try:
            connection = connect(self.files)
            connection.execute(f"SET allowed_paths = {_sql_list(_on_disk(self.files))}")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            statements = connection.extract_statements(self._sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise BadArgument("--query must be one SELECT, such as: SELECT count(*) FROM pages")
            return connection.sql(self._sql)
        except duckdb.Error as exc:
            raise BadArgument(message_of(exc)) from None

    def schema(self) -> pa.Schema:
        """Return the types of the columns, as every tool reads them from Parquet."""
        schema = self._relation.limit(0).to_arrow_table().schema
        return without_maps(
            pa.schema([f.with_name(name) for f, name in zip(schema, self.columns, strict=True)])
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        has_begun = False
        while True:
            try:
                for batch in self._relation.to_arrow_reader():
                    has_begun = True
                    yield from batch.rename_columns(self.columns).to_pylist(maps_as_pydicts="strict")
            except duckdb.Error as exc:
                if all(map(Path.exists, _on_disk(self.files))):
                    raise BadArgument(message_of(exc)) from None
                if has_begun:
                    raise BadArgument("Segments were merged while the query ran. Run it again.") from None
                self._relation = self._prepare()
            else:
                return


def connect(files: Sequence[Place], select: str = "*", **options: str) -> duckdb.DuckDBPyConnection:
    """Return a connection with the rows of *files* as the table ``pages``; *options* are DuckDB's."""
    connection = duckdb.connect(":memory:", config=_SANDBOX | options)
    connection.execute("SET TimeZone = 'UTC'")
    rows = _rows_of(_on_disk(files))
    if stored := [file for file in files if isinstance(file, StorePath)]:
        # What DuckDB would need for that is not in its package; pyarrow reads, DuckDB says which columns.
        connection.register("stored", _dataset_of(stored))
        rows.append(f"SELECT {_FIELDS_AS_MAP} FROM stored")
    connection.execute(f"CREATE VIEW pages AS SELECT {select} FROM ({' UNION ALL BY NAME '.join(rows)})")
    return connection


def _on_disk(files: Iterable[Place]) -> list[Path]:
    return [file.resolve() for file in files if isinstance(file, Path)]


def _dataset_of(files: Iterable[StorePath]) -> ds.Dataset:
    format_ = ds.ParquetFileFormat()
    fragments = [format_.make_fragment(pa.PythonFile(file.open(), "r")) for file in files]
    return ds.FileSystemDataset(fragments, SCHEMA, format_)


def _rows_of(files: Sequence[Path]) -> list[str]:
    """Return SELECTs of all rows, with `fields` as a map in old files and new."""
    lists = [file for file in files if has_field_list(file)]
    known = set(lists)
    maps = [file for file in files if file not in known]
    return [
        f"SELECT {select} FROM read_parquet({_sql_list(chosen)}, union_by_name = true)"
        for select, chosen in ((_FIELDS_AS_MAP, lists), ("*", maps))
        if chosen
    ]


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
