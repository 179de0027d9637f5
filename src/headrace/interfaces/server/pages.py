"""Files for browsers: the console, which is part of the package, and the pages of applications.

A strict content security policy goes with every file: browsers run only scripts of this server, and
send data only to it.
"""

from __future__ import annotations

import asyncio
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import xxhash
from starlette.responses import Response

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.requests import StatusError

if TYPE_CHECKING:
    from starlette.requests import Request


CONSOLE: Final = Path(__file__).with_name("console")
_INDEX: Final = "index.html"
_NOT_FOUND: Final = 404
_NOT_MODIFIED: Final = 304
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
"""Media types by suffix; they take precedence over the machine's own table."""


@dataclass(frozen=True, slots=True)
class Pages:
    """The files below a directory, except paths with a part that begins with a dot.

    Links that lead outside the directory are not followed.
    """

    directory: Path

    async def answer(self, path: str, request: Request) -> Response:
        """Return a file, or status 304 if the browser's copy is current.

        Raises:
            StatusError: ``invalid``, with status 404, if the file does not exist.
        """
        content = await asyncio.to_thread(self._read, path)
        if content is None:
            raise StatusError(
                _NOT_FOUND, HeadraceError(Code.INVALID, f'page "{path}" does not exist here')
            )
        tag = f'"{xxhash.xxh3_128_hexdigest(content)}"'
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(None, _NOT_MODIFIED, headers)
        return Response(content, 200, headers, media_type(path))

    def _read(self, path: str) -> bytes | None:
        parts = (path + _INDEX if path.endswith("/") or not path else path).split("/")
        if any(not part or part.startswith(".") or "\0" in part or "\\" in part for part in parts):
            return None
        try:
            place = self.directory.joinpath(*parts).resolve()
            if not place.is_relative_to(self.directory.resolve()):
                return None
            return place.read_bytes()
        except OSError:
            return None


def media_type(path: str) -> str:
    """Return the media type of a file; a path that ends with a slash is a page."""
    suffix = Path(path).suffix.lower() or ".html"
    return _TYPES.get(suffix) or mimetypes.guess_type(f"x{suffix}")[0] or "application/octet-stream"


@dataclass(frozen=True, slots=True)
class PageHandlers:
    """Serves the files of the console and of applications."""

    console: Pages
    pages: Pages | None

    async def console_page(self, request: Request) -> Response:
        """Return the console."""
        return await self.console.answer("", request)

    async def console_file(self, request: Request) -> Response:
        """Return a file of the console."""
        return await self.console.answer(request.path_params["path"], request)

    async def application_page(self, request: Request) -> Response:
        """Return a file of an application's pages."""
        if self.pages is None:
            raise StatusError(
                _NOT_FOUND,
                HeadraceError(
                    Code.INVALID,
                    "no pages of applications are served",
                    hint="Start the server with headrace serve --pages DIR.",
                ),
            )
        return await self.pages.answer(request.path_params["path"], request)
