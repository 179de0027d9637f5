"""Sinks: destinations of changelogs outside the database, one module per kind."""

from headrace.sinks.files import FileFormat, FileSink, require_format
from headrace.sinks.plain import Blackhole, Printed

__all__ = ["Blackhole", "FileFormat", "FileSink", "Printed", "require_format"]
