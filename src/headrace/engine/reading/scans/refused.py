"""The reason why only Spark can answer a query."""


class Refused(Exception):  # noqa: N818  (not an error: the query is answered otherwise)
    """DuckDB cannot answer a query; the text names the part of its plan that is the reason."""
