#!/usr/bin/env python3
"""Writes fields.txt: numbers, names and types of the fields of Kubernetes' built-in kinds.

usage: make_fields.py DIR > fields.txt      DIR holds the modules k8s.io/api and k8s.io/apimachinery

Numbers and types are those of generated.proto; JSON names, inlining, pointers and omitempty those of
the tags in types.go. Only messages that a served kind reaches are written.
"""
import re
import sys

PACKAGES = {  # in proto: (folder, short name)
    "k8s.io.api.core.v1": ("api/core/v1", "core"),
    "k8s.io.api.apps.v1": ("api/apps/v1", "apps"),
    "k8s.io.api.autoscaling.v2": ("api/autoscaling/v2", "autoscaling"),
    "k8s.io.api.batch.v1": ("api/batch/v1", "batch"),
    "k8s.io.api.coordination.v1": ("api/coordination/v1", "coordination"),
    "k8s.io.api.discovery.v1": ("api/discovery/v1", "discovery"),
    "k8s.io.api.networking.v1": ("api/networking/v1", "networking"),
    "k8s.io.api.node.v1": ("api/node/v1", "node"),
    "k8s.io.api.policy.v1": ("api/policy/v1", "policy"),
    "k8s.io.api.rbac.v1": ("api/rbac/v1", "rbac"),
    "k8s.io.api.scheduling.v1": ("api/scheduling/v1", "scheduling"),
    "k8s.io.api.storage.v1": ("api/storage/v1", "storage"),
    "k8s.io.apimachinery.pkg.apis.meta.v1": ("apimachinery/pkg/apis/meta/v1", "meta"),
}
SPECIAL = {
    "k8s.io.apimachinery.pkg.apis.meta.v1.Time": "time",
    "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1": "raw",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "raw",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "intorstring",
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "quantity",
}
SCALARS = {"string": "s", "bool": "b", "int32": "i", "int64": "i", "bytes": "y"}
ROOTS = """core: ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolumeClaim PersistentVolume Pod
PodTemplate ReplicationController ResourceQuota Secret ServiceAccount Service
apps: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet
autoscaling: HorizontalPodAutoscaler
batch: CronJob Job
coordination: Lease
discovery: EndpointSlice
networking: IngressClass Ingress NetworkPolicy
node: RuntimeClass
policy: PodDisruptionBudget
rbac: ClusterRoleBinding ClusterRole RoleBinding Role
scheduling: PriorityClass
storage: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment
meta: DeleteOptions"""


def module(root, folder):
    name, rest = folder.split("/", 1)
    import glob
    return sorted(glob.glob(f"{root}/{name}@*"))[-1] + "/" + rest


def tags(path):
    """(struct, number) -> (JSON name, inline, pointer, omitempty)"""
    import glob
    found, struct = {}, None
    for file in sorted(glob.glob(path + "/*.go")):
        if file.endswith(("_test.go", ".pb.go")):
            continue
        for line in open(file):
            if m := re.match(r"type (\w+) struct", line):
                struct = m[1]
            m = re.match(r"\s+(?:\w+\s+)?(\S+)\s+`(.*)`", line)
            if not (struct and m):
                continue
            proto = re.search(r'protobuf:"\w+,(\d+),', m[2])
            json = re.search(r'json:"([^"]*)"', m[2])
            if proto and json:
                name, *options = json[1].split(",")
                found[struct, int(proto[1])] = (
                    name, "inline" in options, m[1].startswith("*"), "omitempty" in options or "omitzero" in options)
    return found


def main(root):
    messages = {}
    for package, (folder, short) in PACKAGES.items():
        path = module(root, folder)
        known, current = tags(path), None
        for line in open(path + "/generated.proto"):
            if m := re.match(r"message (\w+) \{", line):
                current = m[1]
                messages[f"{short}.{current}"] = []
            m = re.match(r"  (?:(optional|repeated) )?(map<string, (\S+)>|\S+) (\w+) = (\d+);", line)
            if not (m and current):
                continue
            repeated, whole, of_map, proto_name, number = m[1] == "repeated", m[2], m[3], m[4], int(m[5])
            kind = of_map or whole
            if kind in SCALARS:
                kind = SCALARS[kind]
            elif kind.startswith("."):
                full = kind[1:]
                package_name, message = full.rsplit(".", 1)
                kind = SPECIAL.get(full) or f"{PACKAGES[package_name][1]}.{message}"
            else:
                kind = SPECIAL.get(f"{package}.{kind}") or f"{short}.{kind}"
            name, inline, pointer, omit = known.get((current, number), (proto_name, False, False, True))
            mark = "%" if of_map else "*" if repeated else "^" if inline else "!" if pointer or not omit else ""
            messages[f"{short}.{current}"].append((number, name or proto_name, mark + kind))
    wanted = [f"{line.split(':')[0]}.{kind}" for line in re.sub(r"\n(?!\w+:)", " ", ROOTS).splitlines()
              for kind in line.split(":")[1].split()]
    reached = set()
    while wanted:
        name = wanted.pop()
        if name not in reached and name in messages:
            reached.add(name)
            wanted += [kind.lstrip("%*^!") for _, _, kind in messages[name]]
    for name in sorted(reached):
        print(name, *(f"{number}:{field}:{kind}" for number, field, kind in messages[name]))


main(sys.argv[1])
