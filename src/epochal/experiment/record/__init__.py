"""The record, the log and the notices of the current run."""
