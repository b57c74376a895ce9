"""Whether the manifests in tools/jobs/kubernetes hold together: numbers, names, environments.

check_manifests.py FILE...: exits with 77 where there is no PyYAML. Where kubernetes_validate is installed, what
Kubernetes itself defines is checked against its schemas: whole objects, and the pods of the others.
"""

import sys

try:
    import yaml
except ImportError:
    sys.exit(77)
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

SETS_ITS_OWN = {"PyTorchJob", "MPIJob"}  # rank, size and address come from the operator or mpirun


def validate(thing):
    if kubernetes_validate is not None:
        kubernetes_validate.validate(thing, "1.27", strict=True)


def jobs(thing):
    """(object, its Job-like spec or None, pod template) for each template in it."""
    spec = thing["spec"]
    kind = thing["kind"]
    if kind == "Job":
        yield spec, spec["template"]
    elif kind == "JobSet":
        for replicated in spec["replicatedJobs"]:
            validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
                      "spec": replicated["template"]["spec"]})
            yield replicated["template"]["spec"], replicated["template"]["spec"]["template"]
    else:
        for replicas in spec[{"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}[kind]].values():
            yield None, replicas["template"]


def first_pod(thing):
    name = thing["metadata"]["name"]
    if thing["kind"] == "Job":
        return f"{name}-0.{thing['spec']['template']['spec']['subdomain']}"
    spec = thing["spec"]
    return f"{name}-{spec['replicatedJobs'][0]['name']}-0-0.{spec['network']['subdomain']}"


def check(file):
    things = list(yaml.safe_load_all(open(file)))
    services = {t["metadata"]["name"] for t in things if t["kind"] == "Service"}
    for thing in things:
        kind = thing["kind"]
        if kind in ("Service", "Job"):
            validate(thing)
        if kind == "Service":
            assert thing["spec"]["clusterIP"] == "None" and thing["spec"]["publishNotReadyAddresses"]
            continue
        for job, template in jobs(thing):
            pod = dict(template["spec"], restartPolicy="Never")
            validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod})
            environment = {e["name"]: e for c in pod["containers"] for e in c.get("env", [])}
            if kind != "MPIJob":
                assert environment["TUTTI_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "tutti-token"
            if kind in SETS_ITS_OWN:
                assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(environment), file
                continue
            assert job["completionMode"] == "Indexed"
            size = environment["WORLD_SIZE"]["value"]
            assert size == str(job["completions"]) == str(job["parallelism"]), file
            assert environment["MASTER_ADDR"]["value"] == first_pod(thing), file
            assert environment["MASTER_PORT"]["value"].isdigit()
        if kind == "Job":
            assert thing["spec"]["template"]["spec"]["subdomain"] in services, file
        if kind == "PyTorchJob":  # the operator looks for containers of that name
            for replicas in thing["spec"]["pytorchReplicaSpecs"].values():
                assert [c["name"] for c in replicas["template"]["spec"]["containers"]] == ["pytorch"]


for path in sys.argv[1:]:
    check(path)
print(len(sys.argv) - 1, "manifests")
