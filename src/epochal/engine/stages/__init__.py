"""Stages of a run and what they change."""
