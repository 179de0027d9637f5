"""One open database served over HTTP, on a loopback address."""
