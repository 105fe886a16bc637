#!/usr/bin/env bash
# Kubernetes' own suite of kubectl (k8s.io/kubernetes, test/cmd), by a bearer token and by a client
# certificate through the gateway: whatever passes on a bare kube-apiserver passes through it.
#
# WAYS="token certificate"   direct-token and direct-certificate are without the gateway
# RUN=REGEX                  only groups that match
# GROUP_LIMIT=300            seconds that a group may take; more on a busy machine
# WRITE_BASELINE=1           runs without the gateway and writes what passes there
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${OUT:?}" "${SUMMARY:?}"

KUBERNETES=1.36.2
BASELINE=$HERE/kubectl/direct-$KUBERNETES.tsv
MORE_PARTS=(CONVERT=kubectl-convert)
behind_the_gateway kubectl script tput || exit 0
SOURCE=$(cd "$CACHE" && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$KUBERNETES" | jq -r .Dir)
[ -d "$SOURCE/test/cmd" ] || {
    skip kubectl "the module k8s.io/kubernetes v$KUBERNETES cannot be had"
    exit 0
}
export SOURCE GROUPS_RUN=${RUN:-.}

each_way kubectl "Groups of Kubernetes' kubectl suite $KUBERNETES" "$BASELINE"
