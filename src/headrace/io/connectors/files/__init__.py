"""Files: single files and directories as sources, sinks of changes, and exports."""
