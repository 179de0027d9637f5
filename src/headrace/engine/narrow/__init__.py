"""The plan of a program, run in this process: for few rows a job takes longer than they do."""
