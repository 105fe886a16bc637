#!/usr/bin/env bash
# Runs suites that others wrote against `sluice metastore serve` and through the gateway, each pinned
# to a version, and compares the outcome with what the same suite did on etcd or without the gateway.
#
# usage: run.sh [SUITE...]        default: all
# suites: k8s-storage   Kubernetes' storage tests 0.36.2 and 0.37.2 (store and watch cache)
#         etcd-robustness  etcd's robustness traffic and validators 3.7.3, with kill -9
#         etcd-common   etcd's tests/common 3.7.3 by the real etcdctl
#         etcd-e2e      etcd's tests/e2e 3.7.3 by the real etcdctl, etcdutl and curl
#         etcd-integration  etcd's tests of its Go client and of the gRPC API 3.7.3
#         kubectl       Kubernetes' suite of kubectl 1.36.2 through the gateway
#         e2e           Kubernetes' e2e tests 1.36.2 that need no kubelet, through the gateway
#         plane         whole control planes 1.36.2, 1.35.4 and 1.37.2, with kwok's nodes
#
# SLUICE=PATH  the binary to test (built for release otherwise)    JOBS=2   tests at once
# RUN=REGEX    only tests whose name matches                       OUT=DIR  results and logs
# ROUNDS=3 SECONDS_EACH=20 SEED=1  of etcd-robustness
# WAYS="token certificate"         by what credential, of kubectl and e2e
#
# Exit: 0 all that passes without us passed, or is excepted with a reason; 1 something did not; 2 a
# suite could not run although this machine has Go.
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

suites=("$@")
[ $# -gt 0 ] || suites=(k8s-storage etcd-robustness etcd-common etcd-e2e etcd-integration kubectl e2e plane)
for suite in "${suites[@]}"; do
    case $suite in
    k8s-storage | etcd-robustness | etcd-common | etcd-e2e | etcd-integration | kubectl | e2e | plane) ;;
    *)
        say "unknown suite: $suite (see $0)"
        exit 2
        ;;
    esac
done

OUT=${OUT:-$(mktemp -d "${TMPDIR:-/tmp}/sluice-conformance.XXXXXX")}
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 2
SUMMARY=$OUT/summary.tsv
: >"$SUMMARY"

worst=0
if ! command -v go >/dev/null; then
    for suite in "${suites[@]}"; do skip "$suite" "no Go toolchain on PATH"; done
else
    if [ -z "${SLUICE:-}" ]; then
        (cd "$ROOT" && cargo build --locked --release --bin sluice) || exit 2
        SLUICE=$ROOT/target/release/sluice
    fi
    SLUICE=$(realpath "$SLUICE")
    RUNNER=$OUT/runner
    (cd "$HERE/runner" && go test ./... && go build -o "$RUNNER" .) || exit 2
    export SLUICE RUNNER OUT SUMMARY
    for suite in "${suites[@]}"; do
        began=$SECONDS
        case $suite in
        etcd-common | etcd-e2e) bash "$HERE/etcd-tests/suite.sh" "${suite#etcd-}" ;;
        *) bash "$HERE/$suite/suite.sh" ;;
        esac
        status=$?
        say "$suite: $((SECONDS - began)) s"
        [ $status -gt $worst ] && worst=$status
    done
fi

echo
awk -F'\t' -v form='%-36s %7s %7s %8s %7s\n' '
    BEGIN { printf form, "suite", "passed", "failed", "skipped", "known" }
    $2 == "SKIPPED" { printf "%-36s SKIPPED: %s\n", $1, $3; next }
    { printf form, $1, $2, $3, $4, $5 }' "$SUMMARY"
echo "logs: $OUT"
exit $worst
