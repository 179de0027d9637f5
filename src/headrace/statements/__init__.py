"""The statements: one module per kind, over the parts of one open database."""
