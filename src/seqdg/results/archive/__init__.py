"""A run as two Parquet files, for publishing, which every command that reads runs can read, as pandas, polars and
DuckDB can; and the one file of 0.1, which is still read."""
