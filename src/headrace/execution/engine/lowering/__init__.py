"""From circuits to Spark jobs: the plans that epochs, fills and replays run."""
