"""Environments for actors or tasks of Ray that are the ranks of one Tutti job.

    import ray, tutti_ray

    @ray.remote(num_cpus=1)
    class Rank:
        def where(self):
            return tutti_ray.where()

        def run(self, environment):
            os.environ.update(environment)
            ...                      # anything that calls tutti_init() or Communicator::init()

    ranks = [Rank.remote() for _ in range(4)]
    places = ray.get([rank.where.remote() for rank in ranks])
    for environment, rank in zip(tutti_ray.environments(places), ranks):
        rank.run.remote(environment)

Needs nothing but the standard library: Ray itself is asked only for the actor's address.
"""

import secrets
import socket


def where():
    """Address and a free port of the process that calls it: run it in each actor."""
    try:
        import ray

        address = ray.util.get_node_ip_address()
    except (ImportError, AttributeError):
        try:
            address = socket.gethostbyname(socket.gethostname())
        except OSError:
            address = "127.0.0.1"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return address, probe.getsockname()[1]


def environments(places, token=None):
    """The environment of each rank, from what where() returned in each actor, in the order of ranks.

    Ranks of one address count as ranks of one host. Ranks meet at the port of rank 0, which was free when it was asked;
    should somebody take it meanwhile, rank 0 says so, and the actors are asked again.
    """
    if not places:
        raise ValueError("there are no actors: give what where() returned in each of them")
    token = token or secrets.token_hex(16)
    address, port = places[0]
    hosts = [place[0] for place in places]
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(places)),
            "LOCAL_RANK": str(hosts[:rank].count(host)),
            "LOCAL_WORLD_SIZE": str(hosts.count(host)),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "TUTTI_TOKEN": token,
        }
        for rank, host in enumerate(hosts)
    ]
