"""Verbs that help before and beside runs: plan, profile, searches, doctor, schema, completion."""
