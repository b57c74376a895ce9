"""A Ray cluster of two nodes, which are both this host: four actors are the ranks of a job, then one is killed.

ray_cluster.py TUTTI FILE: FILE gets the first job's results. Exits with 77 where there is no Ray.
"""

import os
import shutil
import subprocess
import sys
import tempfile

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    sys.exit(77)
sys.path.insert(0, os.path.abspath("tools/jobs/ray"))
import tutti_ray

RANKS = 4


@ray.remote(num_cpus=1)
class Rank:
    def where(self):
        return tutti_ray.where()

    def node(self):
        return ray.get_runtime_context().get_node_id()

    # The rank's process ends with its actor.
    def start(self, environment, command):
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], env={**os.environ, **environment},
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def first_line(self):
        return self.process.stdout.readline()

    def finish(self):
        _, said = self.process.communicate()
        return self.process.returncode, said


def start(command):
    ranks = [Rank.options(scheduling_strategy="SPREAD").remote() for _ in range(RANKS)]
    assert len(set(ray.get([rank.node.remote() for rank in ranks]))) == 2, "both nodes have actors"
    environments = tutti_ray.environments(ray.get([rank.where.remote() for rank in ranks]))
    ray.get([rank.start.remote(environment, command) for rank, environment in zip(ranks, environments)])
    return ranks


def try_it(tutti, file):
    ranks = start([tutti, "bench", "all_reduce", "--max", "64K", "--factor", "128", "--json", file])
    for code, said in ray.get([rank.finish.remote() for rank in ranks]):
        assert (code, said) == (0, ""), said
    for rank in ranks:
        ray.kill(rank)

    ranks = start([tutti, "bench", "all_reduce", "--min", "1M", "--max", "1M", "--iterations", "1000000"])
    ray.get(ranks[0].first_line.remote())  # all have joined
    ray.kill(ranks[2])
    for code, said in ray.get([rank.finish.remote() for rank in ranks if rank != ranks[2]]):
        assert code != 0 and "rank 2" in said, said


# Actors import the helper by name. Socket paths must be short.
os.environ["PYTHONPATH"] = os.path.abspath("tools/jobs/ray")
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
folder = tempfile.mkdtemp(prefix="tutti-ray-", dir="/tmp")
cluster = Cluster(initialize_head=True,
                  head_node_args={"num_cpus": 2, "include_dashboard": False, "temp_dir": folder})
try:
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    try_it(*sys.argv[1:])
finally:
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
print("right")
