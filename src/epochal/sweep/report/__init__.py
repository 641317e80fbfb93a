"""What a sweep leaves for readers: a page and a picture of the same figures, and an export."""
