"""Deploying a project's definitions: what differs from a database, and the changes, in order."""
