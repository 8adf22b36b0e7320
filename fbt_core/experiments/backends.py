"""Where the jobs of a sweep run: this machine's cores (joblib), or a Ray or Dask cluster, by default a local one.

A backend is a function of tasks and a ``Cluster`` that yields outcomes as they come, in any order. A task runs with one
thread, so that its numbers do not depend on the machine's cores, nor on the backend.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

Run = Callable[[dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Cluster:
    """What to run on: ``workers`` jobs at a time, ``gpus`` (or a share of one) for each, a scheduler's ``address``."""

    workers: int
    gpus: float = 0.0
    address: str | None = None  # None: a cluster on this machine, for this sweep alone


@dataclass(frozen=True)
class Task:
    """Job number ``number`` of a sweep. ``run`` is a module-level function: every backend can send it."""

    number: int
    run: Run
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a task: rows, or the traceback in ``fault``."""

    number: int
    rows: list[dict[str, Any]]
    seconds: float
    fault: str = ""


def perform(task: Task) -> Outcome:
    """Run a task with one thread. An exception of its own is an outcome: the other tasks go on."""
    from threadpoolctl import threadpool_limits

    began, threads = time.monotonic(), torch.get_num_threads()
    try:
        with threadpool_limits(1):
            torch.set_num_threads(1)
            _choose_gpu(task)
            rows = task.run(dict(task.parameters))
        return Outcome(task.number, rows, time.monotonic() - began)
    except Exception:
        return Outcome(task.number, [], time.monotonic() - began, traceback.format_exc())
    finally:
        torch.set_num_threads(threads)


def _choose_gpu(task: Task) -> None:
    """Spread the tasks that ask for a GPU over those that are seen; Ray lets a task see its own alone."""
    if str(task.parameters.get("device", "cpu")).startswith("cuda") and (count := torch.cuda.device_count()) > 1:
        torch.cuda.set_device(task.number % count)


def on_joblib(tasks: Sequence[Task], cluster: Cluster) -> Iterator[Outcome]:
    """Processes on this machine; with one worker, this process."""
    from joblib import Parallel, delayed, parallel_config

    if cluster.address:
        raise ValueError("got --address with joblib, expected it with ray or dask: joblib uses this machine")
    workers = cluster.workers
    if cluster.gpus:
        _enough(float(torch.cuda.device_count()), cluster.gpus)
        workers = min(workers, int(torch.cuda.device_count() / cluster.gpus))
    options = {"inner_max_num_threads": 1} if workers > 1 else {}
    with parallel_config("loky" if workers > 1 else "sequential", n_jobs=workers, **options):
        pool = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
        yield from pool(delayed(_perform_below)(os.getpid(), task) for task in tasks)


def _perform_below(parent: int, task: Task) -> Outcome:
    """Perform in a process that ends when its parent does: joblib's would go on, beside those that resume the sweep."""
    if os.getpid() != parent and not any(thread.name == WATCH for thread in threading.enumerate()):
        threading.Thread(target=_end_with, args=(parent,), name=WATCH, daemon=True).start()
    return perform(task)


WATCH = "fiberscope-parent"


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def on_ray(tasks: Sequence[Task], cluster: Cluster) -> Iterator[Outcome]:
    """A Ray cluster by its address, or one on this machine, which obeys only who knows its random token."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning where no GPU is asked for
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if cluster.address is None:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray writes one into the home folder
    try:
        import ray
    except ImportError as fault:
        raise _absent("ray") from fault

    ray.init(
        address=cluster.address or "local", log_to_driver=False, logging_level=logging.ERROR,
        **({} if cluster.address else _local_ray(cluster)),
    )  # fmt: skip
    try:
        _enough(float(ray.cluster_resources().get("GPU", 0.0)), cluster.gpus)
        remote = ray.remote(num_cpus=1, num_gpus=cluster.gpus)(perform)
        waiting = [remote.remote(task) for task in tasks]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield from ray.get(done)
    finally:
        ray.shutdown()


def _local_ray(cluster: Cluster) -> dict[str, Any]:
    """Of ``ray.init``. It takes 127.0.0.1 for a slip and listens to the network; the next loopback address it keeps."""
    private = {"_node_ip_address": "127.0.0.2"} if sys.platform == "linux" else {}
    return private | {
        "num_cpus": cluster.workers, "include_dashboard": False, "object_store_memory": 100_000_000,
        "_system_config": {"worker_niceness": 0},
    }  # fmt: skip


def on_dask(tasks: Sequence[Task], cluster: Cluster) -> Iterator[Outcome]:
    """A Dask scheduler by its address, or one on this machine. With GPUs its workers declare a resource ``GPU``."""
    try:
        import distributed
    except ImportError as fault:
        raise _absent("distributed") from fault

    with ExitStack() as stack:
        scheduler: Any = cluster.address
        if scheduler is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            gpus = {"GPU": torch.cuda.device_count() / cluster.workers} if cluster.gpus else None
            scheduler = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=cluster.workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
                    local_directory=folder, resources=gpus, memory_limit=0,
                )
            )  # fmt: skip
        client = stack.enter_context(distributed.Client(scheduler, set_as_default=False))
        held = [worker.get("resources", {}).get("GPU", 0.0) for worker in client.scheduler_info()["workers"].values()]
        _enough(float(max(held, default=0.0)), cluster.gpus)
        wanted = {"GPU": cluster.gpus} if cluster.gpus else None
        futures = client.map(perform, tasks, pure=False, resources=wanted)
        for future in distributed.as_completed(futures, loop=client.loop):
            yield future.result()
            future.release()


def _absent(package: str) -> ValueError:
    return ValueError(
        f"got no package {package}, expected it for this backend: pip install -r requirements-cluster.txt"
    )


def _enough(held: float, wanted: float) -> None:
    if held < wanted:
        raise ValueError(f"got --gpus {wanted:g}, expected at most the {held:g} that a worker has here")


BACKENDS: dict[str, Callable[[Sequence[Task], Cluster], Iterator[Outcome]]] = {
    "joblib": on_joblib,
    "ray": on_ray,
    "dask": on_dask,
}
