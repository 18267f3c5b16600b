"""Ground floor: Python and numpy only."""
