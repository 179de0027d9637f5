"""Where rows come from: the embedded log, files, and external systems."""
