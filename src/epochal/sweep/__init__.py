"""Hyper-parameter search: a sweep proposes values, and each trial is an ordinary run."""
