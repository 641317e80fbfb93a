"""The place of a process, from the variables of its launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.distributed.environment import is_main_process, read_rank_environment

if TYPE_CHECKING:
    import pytest


def test_place_is_read_from_torchrun_slurm_and_mpi() -> None:
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    slurm = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
    slurm |= {"SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_JOB_ID": "41"}
    mpi = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}
    mpi |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    for environ in (torchrun, slurm, mpi):
        place = read_rank_environment(environ)
        assert place is not None, environ
        found = place.rank, place.world_size, place.local_rank, place.local_world_size
        assert found == (5, 8, 1, 4), environ


def test_rendezvous_address_is_set_or_follows_from_the_job() -> None:
    here = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
    place = read_rank_environment(
        {**here, "SLURM_JOB_ID": "41", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"}
    )
    assert place is not None
    assert (place.master_addr, place.master_port) == ("10.0.0.7", 20041)
    place = read_rank_environment({**here, "MASTER_ADDR": "node1", "MASTER_PORT": "29500"})
    assert place is not None
    assert (place.master_addr, place.master_port) == ("node1", 29500)


def test_process_without_a_launcher_has_no_place() -> None:
    for environ in (
        {},
        {"RANK": "0"},
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script is one process
    ):
        assert read_rank_environment(environ) is None, environ


def test_main_process_is_rank_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_main_process()
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, is_main in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert is_main_process() is is_main
