"""Arrow IPC streams that arrive from outside."""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import Code, HeadraceError


def table_of_stream(data: bytes) -> pa.Table:
    """Return the table of an Arrow IPC stream, once it is known to be well-formed.

    Raises:
        HeadraceError: INVALID if it is not.
    """
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, "the body is not an Arrow IPC stream", f"{error}."
        ) from error
    return table
