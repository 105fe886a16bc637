#!/usr/bin/env bash
# Runs groups of Kubernetes' kubectl suite (k8s.io/kubernetes, test/cmd) against a control plane of
# its own, each in a shell of its own, and writes a line for each.
#
# usage: driver.sh WAY DIR
# WAY: direct-token, direct-certificate, token, certificate: by whom the groups talk to the
#      apiserver, and whether through the gateway
# DIR: results.tsv (verdict, group, seconds, assertions, first failing assertion) and logs
#
# SOURCE CONVERT KUBECTL ETCD APISERVER CONTROLLERS SLUICE   paths
# GROUPS_RUN=REGEX   only groups that match         GROUP_LIMIT=300   seconds a group may take
# PORT=25100         the first of five free ports
#
# A group failed when its shell ends in an error or not in time, or when it prints FAIL!. What it left
# is deleted then, so that it does not pull others along.
# Left out: the check of kube-apiserver's --version, which is a flag and not an API, and kubeadm's part.
# Exit: 0 all ran, whatever they did; 2 the stack cannot be had.
set -o nounset -o pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=e2e/conformance/kubectl/copy.sh
. "$HERE/copy.sh"
# shellcheck source=e2e/conformance/control-plane.sh
. "$HERE/../control-plane.sh"

WAY=$1 PORT=${PORT:-25100}
mkdir -p "$2/logs" && OUT=$(cd "$2" && pwd) || exit 2
WORK=$(mktemp -d -t kubectl-suite.XXXXXX) || exit 2
COPY=$WORK/suite SCRATCH=$WORK/tmp DIR=$OUT/stack MANIFESTS=
mkdir -p "$SCRATCH" "$DIR"

finish() {
    local status=$?
    trap - EXIT
    [ -z "$MANIFESTS" ] || kill "$MANIFESTS" 2>/dev/null
    stop
    rm -rf "$DIR/etcd" "$WORK"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# The condition is what the node controller would write after a minute without a kubelet:
# run_nodes_tests looks for one.
ensure_node() {
    administer get node 127.0.0.1 >/dev/null 2>&1 || administer create -f - >/dev/null 2>&1 <<'NODE'
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "127.0.0.1", "annotations": {"save-managers": "true"}},
 "status": {"capacity": {"memory": "1Gi"},
  "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated", "message": "no kubelet",
   "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
NODE
}

# kinds NAMESPACED: what can be listed and deleted, without what the control plane makes by itself.
kinds() {
    administer api-resources --namespaced="$1" --verbs=list,delete -o name 2>/dev/null |
        grep -vE '^(events(\.events\.k8s\.io)?|leases\..*|endpoints|endpointslices\..*|apiservices\..*|(flowschemas|prioritylevelconfigurations)\..*|ipaddresses\..*|servicecidrs\..*)$' |
        paste -sd,
}

# inventory: a line for each object without a namespace ("-") or in "default".
inventory() {
    {
        administer get "$CLUSTER_KINDS" -o name --ignore-not-found 2>/dev/null | sed 's/^/- /'
        administer get "$SPACED_KINDS" -n default -o name --ignore-not-found 2>/dev/null | sed 's/^/default /'
    } | sort
}

# sweep: deletes what was not there before the first group, two hundred objects at most.
sweep() {
    local space object now
    inventory | comm -13 "$WORK/before" - | head -n 200 | while read -r space object; do
        now=()
        case $object in pod/*) now=(--force --grace-period=0) ;; esac
        [ "$space" = - ] || now+=(-n "$space")
        administer delete "$object" --wait=false "${now[@]}" >/dev/null 2>&1 </dev/null
    done
    administer delete node 127.0.0.1 --wait=false >/dev/null 2>&1
    ensure_node
}

# has_failed GROUP STATUS LOG: in some groups errexit is off, and only what they print says it.
has_failed() {
    [ "$2" -eq 0 ] || return 0
    # The client's timer or the server's may be first, and this one tries both texts.
    [ "$1" != run_kubectl_request_timeout_tests ] && grep -q 'FAIL!' "$3"
}

# run_group GROUP LOG
run_group() {
    local pid status=0
    # timeout makes the group a process group, by whose id what is left of it is ended.
    env -i PATH="$PATH" LANG=C TMPDIR="$SCRATCH" USER="${USER:-suite}" COPY="$COPY" \
        SECURE_API_PORT="$FRONT" KUBECONFIG_FILE="$DIR/client.json" \
        timeout -k 10 "${GROUP_LIMIT:-300}" bash "$HERE/group.sh" "$1" >"$2" 2>&1 </dev/null &
    pid=$!
    wait "$pid" || status=$?
    kill -9 -- "-$pid" 2>/dev/null
    rm -rf "$SCRATCH"/group.* "$SCRATCH"/tmp-* "$COPY"/proxy-port.out.*
    return $status
}

suite_groups "$SOURCE" | grep -E -- "${GROUPS_RUN:-.}" >"$WORK/groups" || exit 2
copy_suite "$SOURCE" "$COPY" "$SCRATCH" "$KUBECTL" "$CONVERT" || exit 2
serve_manifests "$COPY"
# The flags of the suite's own start-up. AlwaysAllow, since it acts as users who have no rights.
APISERVER_FLAGS=(
    --authorization-mode=RBAC,AlwaysAllow --runtime-config=api/v1
    --enable-admission-plugins=LimitRanger,ResourceQuota
    --disable-admission-plugins=ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,StorageObjectInUseProtection
)
ready "$WAY" "$COPY/hack/testdata/ca/ca" "$PORT" || exit 2
# The groups about set-cluster read the server's certificate from here.
cp "$DIR/serving-ca.crt" "$SCRATCH/apiserver.crt"
ensure_node
CLUSTER_KINDS=$(kinds false) SPACED_KINDS=$(kinds true)
inventory >"$WORK/before"

# An error inside a group must be seen.
run_group run_suite_canary "$OUT/logs/run_suite_canary.log"
case $? in 0 | 78) echo "a group that must fail did not" >&2 && exit 2 ;; esac

: >"$OUT/results.tsv"
while read -r group; do
    log=$OUT/logs/$group.log began=$SECONDS detail=
    ensure_node
    run_group "$group" "$log"
    status=$?
    verdict=PASS
    if has_failed "$group" $status "$log"; then
        verdict=FAIL detail=$(awk -f "$HERE/firstfail.awk" "$log")
        [ $status -ne 124 ] || detail="time limit of ${GROUP_LIMIT:-300} s; $detail"
        sweep
    fi
    detail=${detail//$SCRATCH/TMPDIR} detail=${detail//$COPY/.}
    printf '%s\t%s\t%s\t%s\t%s\n' "$verdict" "$group" $((SECONDS - began)) \
        "$(grep -ac Successful "$log")" "$detail" | tee -a "$OUT/results.tsv" >&2
done <"$WORK/groups"

# Whatever the groups saw of it: a part that is gone at the end fell.
for pid in "${STARTED[@]}"; do
    kill -0 "$pid" 2>/dev/null || { echo "a part of the stack has ended, see $DIR" >&2 && exit 2; }
done
