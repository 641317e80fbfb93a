"""The processes of a distributed run: ranks, process groups, failures, DDP and FSDP."""
