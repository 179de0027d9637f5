"""One open database served over HTTP."""
