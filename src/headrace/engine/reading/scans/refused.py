"""Why a query is left to Spark."""


class Refused(Exception):  # noqa: N818  (not an error: the query is answered otherwise)
    """DuckDB does not answer a query; the text names the part of its plan that is the reason."""
