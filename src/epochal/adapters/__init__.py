"""Code written for other frameworks, run by the engine."""
