"""The statements: a room for each kind. What a statement can touch are the fields of its class."""
