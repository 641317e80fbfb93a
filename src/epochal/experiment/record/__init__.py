"""The record, the log and the notifications of the current run."""
