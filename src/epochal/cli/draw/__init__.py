"""Tables, charts and bars for a terminal."""
