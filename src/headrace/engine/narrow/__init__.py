"""Runs the plans of programs in this process, since a job costs more than processing few rows."""
