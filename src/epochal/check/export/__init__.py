"""JSON Schema and config templates, written from signatures."""
