"""Teaching: checks beside measured cells (questions, hints and progress come with the labs)."""
