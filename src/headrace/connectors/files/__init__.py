"""Files: sources of rows and directories, sinks of changes, and exports."""
