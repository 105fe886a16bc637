#!/usr/bin/env bash
# Runs those of Kubernetes' e2e tests (k8s.io/kubernetes, test/e2e) that need no kubelet against a
# control plane of its own, with kwok in the place of nodes, and writes a line for each.
#
# usage: driver.sh WAY DIR
# WAY: direct-token, direct-certificate, token, certificate: by whom the tests talk to the
#      apiserver, and whether through the gateway
# DIR: results.tsv (verdict, test, seconds, what failed) and logs
#
# E2E KUBECTL ETCD APISERVER CONTROLLERS SCHEDULER KWOK SLUICE   paths
# FOCUS, SKIP          regular expressions over the tests' names, see suite.sh
# PORT=25200           the first of seven free ports
# Exit: 0 all ran, whatever they did; 2 the stack cannot be had, or the tests came to no end.
set -o nounset -o pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=e2e/conformance/control-plane.sh
. "$HERE/../control-plane.sh"

WAY=$1 PORT=${PORT:-25200}
mkdir -p "$2/stack" && OUT=$(cd "$2" && pwd) || exit 2
DIR=$OUT/stack

finish() {
    local status=$?
    trap - EXIT
    stop
    rm -rf "$DIR/etcd"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

APISERVER_FLAGS=(--authorization-mode=Node,RBAC --allow-privileged)
CONTROLLER_FLAGS=(
    "--service-account-private-key-file=$DIR/sa.key" "--root-ca-file=$DIR/serving-ca.crt"
    # A test that changes a quota's status waits until it is set right again: for minutes by default.
    --resource-quota-sync-period=10s
)
authority clients-ca && ready "$WAY" "$DIR/clients-ca" "$PORT" || exit 2
administer create -f - >/dev/null <<'NODES' || exit 2
{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0", "labels": {"kubernetes.io/os": "linux"}}},
 {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"kubernetes.io/os": "linux"}}}]}
NODES
start kwok "http://127.0.0.1:$((PORT + 5))/healthz" "$KWOK" --kubeconfig="$DIR/direct.json" \
    --config="$HERE/../../parts/stages.yaml" --manage-all-nodes=true --node-lease-duration-seconds=40 \
    --node-ip=127.0.0.1 --server-address="127.0.0.1:$((PORT + 5))" || exit 2
start scheduler "https://127.0.0.1:$((PORT + 6))/healthz" "$SCHEDULER" --kubeconfig="$DIR/direct.json" \
    --bind-address=127.0.0.1 --secure-port=$((PORT + 6)) --cert-dir="$DIR/certs" --leader-elect=false || exit 2
# The tests begin only where nodes are Ready, and no longer tainted as new ones are.
for ((n = 0; n < 240; n++)); do
    [ -z "$(administer get nodes -o 'jsonpath={.items[*].spec.taints}')" ] && break
    sleep 0.5
done

env -i PATH="$PATH" HOME="$OUT" "$E2E" --kubeconfig="$DIR/client.json" --kubectl-path="$KUBECTL" \
    --provider=skeleton --allowed-not-ready-nodes=-1 --minStartupPods=-1 --disable-log-dump \
    --ginkgo.focus="$FOCUS" --ginkgo.skip="$SKIP" --ginkgo.timeout=3h --ginkgo.no-color --ginkgo.v \
    --ginkgo.json-report="$OUT/report.json" >"$OUT/e2e.log" 2>&1 </dev/null
[ -s "$OUT/report.json" ] || {
    echo "the tests left no report; the end of $OUT/e2e.log:" >&2
    tail -n 20 "$OUT/e2e.log" >&2
    exit 2
}
# A test that the expressions leave out was never attempted; one that skips itself was.
jq -r '.[0].SpecReports[] | select(.LeafNodeType == "It" and .NumAttempts > 0)
    | [if .State == "passed" then "PASS" elif .State == "skipped" then "SKIP" else "FAIL" end,
       (.ContainerHierarchyTexts + [.LeafNodeText] | join(" ")), (.RunTime / 1e9 | round),
       (.Failure.Message // "" | split("\n") | join(" ") | .[:300])] | @tsv' \
    "$OUT/report.json" >"$OUT/results.tsv" || exit 2
for pid in "${STARTED[@]}"; do
    kill -0 "$pid" 2>/dev/null || { echo "a part of the stack has ended, see $DIR" >&2 && exit 2; }
done
