#!/usr/bin/env bash
# Kubernetes' own storage tests (k8s.io/apiserver, the code by which kube-apiserver reads and writes
# etcd, and its watch cache), each against a fresh store. One file of the module's copy is exchanged:
# the one that starts an etcd inside the test process (external_server.go).
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${RUNNER:?}" "${OUT:?}" "${SUMMARY:?}"

serve="exec $(quoted "$SLUICE") metastore serve --data-dir {DIR}/d --watch-progress-notify-interval {PROGRESS} --log-level warn"
export STORE_START="$serve --insecure-loopback --listen-client-urls http://127.0.0.1:{CPORT}"
export STORE_START_TLS="$serve --listen-client-urls https://127.0.0.1:{CPORT} --cert-file {CERT} --key-file {KEY} --trusted-ca-file {CA}"

worst=0
for version in ${VERSIONS:-0.36.2 0.37.2}; do
    kept=$CACHE/apiserver-$version
    name=k8s-storage-$version
    if ! module_copy k8s.io/apiserver "$version" "$kept/src" >&2; then
        skip "$name" "the module k8s.io/apiserver v$version cannot be had"
        continue
    fi
    seam=$kept/src/pkg/storage/etcd3/testserver/test_server.go
    cmp -s "$HERE/k8s-storage/external_server.go" "$seam" || cp "$HERE/k8s-storage/external_server.go" "$seam"
    for package in pkg/storage/etcd3 pkg/storage/cacher; do
        short=$name/${package##*/}
        binary=$kept/bin/${package##*/}.test
        if ! test_binary "$kept/src" "$package" "$binary" >&2; then
            skip "$short" "its tests cannot be built"
            worst=2
            continue
        fi
        export STORE_LOGS=$OUT/$short/server
        mkdir -p "$STORE_LOGS"
        # A busy machine does not grant what two tests count on: TestCompact that a goroutine of its own
        # gets there within 100 ms, TestListContinuation that it is done within a second, when the
        # client's own compactor reads once more and is counted ("unexpected reads: 2, want: 1").
        # shellcheck disable=SC2046
        "$RUNNER" -suite "$short" -pkg "$package" -binary "$binary" -dir "$kept/src/$package" \
            -out "$OUT/$short" -baseline "$HERE/k8s-storage/etcd-$version.tsv" -run "${RUN:-.}" \
            -summary "$SUMMARY" -jobs "${JOBS:-2}" -retries 1 $(own_network)
        status=$?
        [ $status -gt $worst ] && worst=$status
    done
done
exit $worst
