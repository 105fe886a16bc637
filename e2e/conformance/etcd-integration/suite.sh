#!/usr/bin/env bash
# etcd's tests/integration of its Go client: kv, txn, lease, watch, concurrency and connections, and
# the tests of the gRPC API itself. They start an etcd in their own process; here what clients ask of
# it goes to the store (external_store.go, seam.patch), while what waits for a leader still has one.
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${RUNNER:?}" "${OUT:?}" "${SUMMARY:?}"

VERSION=3.7.3
KEPT=$CACHE/etcd-integration-$VERSION
PACKAGES=(integration/clientv3 integration/clientv3/watch integration/clientv3/lease
    integration/clientv3/concurrency integration/clientv3/connectivity integration)

give_up() {
    skip etcd-integration "$1"
    exit "$2"
}

# seam: the two edits, in a copy that has none yet.
seam() {
    cmp -s "$HERE/etcd-integration/external_store.go" "$KEPT/src/framework/integration/external_store.go" ||
        cp "$HERE/etcd-integration/external_store.go" "$KEPT/src/framework/integration/" || return 1
    # Of a module that cannot be had.
    rm -f "$KEPT/src/integration/cache_test.go"
    grep -q serveElsewhere "$KEPT/src/framework/integration/cluster.go" ||
        patch -s -p1 -d "$KEPT/src" <"$HERE/etcd-integration/seam.patch"
}

module_copy go.etcd.io/etcd/tests/v3 "$VERSION" "$KEPT/src" >&2 ||
    give_up "the module go.etcd.io/etcd/tests/v3 v$VERSION cannot be had" 0
seam >&2 || give_up "the package tests/framework/integration differs: adapt $HERE/etcd-integration/seam.patch" 2

mode=()
if [ -n "${WRITE_BASELINE:-}" ]; then
    mode=(-write-baseline)
else
    serve="exec $(quoted "$SLUICE") metastore serve --data-dir {DIR} --watch-progress-notify-interval {PROGRESS} --quota-backend-bytes {QUOTA} --max-txn-ops {OPS} --max-request-bytes {BYTES} --log-level warn"
    export STORE_START="$serve --insecure-loopback --listen-client-urls http://127.0.0.1:{CPORT}"
    export STORE_START_TLS="$serve --listen-client-urls https://127.0.0.1:{CPORT} --cert-file {CERT} --key-file {KEY} --trusted-ca-file {CA}"
fi
worst=0
for package in "${PACKAGES[@]}"; do
    name=etcd-$(tr / - <<<"$package")
    if ! test_binary "$KEPT/src" "$package" "$KEPT/bin/$name.test" >&2; then
        skip "$name" "its tests cannot be built"
        worst=2
        continue
    fi
    # shellcheck disable=SC2046
    "$RUNNER" -suite "$name" -pkg "$package" -binary "$KEPT/bin/$name.test" -dir "$KEPT/src/$package" \
        -out "$OUT/$name" -run "${RUN:-.}" -limit "${LIMIT:-2m}" \
        -baseline "$HERE/etcd-integration/etcd-$VERSION.tsv" \
        -exceptions "$HERE/etcd-integration/exceptions.tsv" \
        -summary "$SUMMARY" -jobs "$(jobs_at_once)" $(own_network) "${mode[@]}"
    status=$?
    [ $status -gt $worst ] && worst=$status
done
exit $worst
