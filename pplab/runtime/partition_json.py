"""A partition as plain JSON values, and back: part of the record of a run."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from pplab.core.partition import Device, Links, Partition, Problem
from pplab.core.profile import Profile
from pplab.runtime.job import schedule_as_json, schedule_from_json


def partition_to_json(partition: Partition) -> dict[str, Any]:
    """Everything the predictions follow from; "no limit" is null (JSON has no infinity)."""
    problem = partition.problem
    return {
        "bounds": list(partition.bounds),
        "method": partition.method,
        "proof": partition.proof,
        "order": list(partition.order),
        "gap": partition.gap,
        "profile": problem.profile.to_json(),
        "schedule": schedule_as_json(problem.schedule),
        "devices": [finite(asdict(device)) for device in problem.devices],
        "links": finite(asdict(problem.links)),
        "bytes_per_parameter": problem.bytes_per_parameter,
        "keep_tied": problem.keep_tied,
        "overhead": problem.overhead,
    }


def partition_from_json(data: dict[str, Any]) -> Partition:
    """The partition ``partition_to_json`` wrote. ValueError or KeyError for anything else."""
    links = data["links"]
    problem = Problem(
        Profile.from_json(data["profile"]),
        schedule_from_json(data["schedule"]),
        tuple(
            Device(**{**device, "memory": endless(device["memory"])}) for device in data["devices"]
        ),
        Links(**{**links, "bandwidth": endless(links["bandwidth"])}),
        data["bytes_per_parameter"],
        data["keep_tied"],
        data["overhead"],
    )
    return Partition(
        problem,
        tuple(data["bounds"]),
        data["method"],
        data["proof"],
        tuple(data["order"]),
        data["gap"],
    )


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Infinity as None."""
    return {name: None if value == inf else value for name, value in values.items()}


def endless(value: float | None) -> float:
    """None as infinity."""
    return inf if value is None else value
