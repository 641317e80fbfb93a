"""Verbs that prepare and support runs: plan, profile, searches, doctor, schema, completion."""
