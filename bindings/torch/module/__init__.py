"""Tutti as a backend of torch.distributed: init_process_group("tutti"), or "cpu:tutti,cuda:nccl".
"""

import atexit

import torch
import torch.distributed as dist

from . import _build

_backend = _build.load()


def _parent():
    """Returns the world backend if its groups can be split by their members alone, else None."""
    if not dist.is_initialized():
        return None
    try:
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    except RuntimeError:  # no backend for this device
        return None
    return backend if _backend.is_parent(backend) else None


def _create(options, _backend_options=None):
    ranks = list(options.global_ranks_in_group)
    parent = _parent() if ranks else None
    if parent is not None:
        return _backend.create_among(parent, ranks, options.store, options.timeout)
    return _backend.create(options.store, options.group_rank, options.group_size, options.timeout)


def register():
    """Registers the backend "tutti" with torch; importing this module has already done so."""
    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
        atexit.register(_backend.leave_all)


register()
