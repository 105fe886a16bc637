#!/usr/bin/env bash
# etcd's own tests (go.etcd.io/etcd/tests/v3) of one package: common or e2e.
#
# They start whatever `etcd` lies in a folder and talk to it by the real etcdctl and etcdutl: here
# that is the stand-in beside this file. The one change to their code is the number of members of a
# cluster for which a test names none, from three to one; the baseline is of etcd with that change.
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${RUNNER:?}" "${OUT:?}" "${SUMMARY:?}"

VERSION=3.7.3
PACKAGE=${1:?common or e2e}
SUITE=etcd-$PACKAGE
KEPT=$CACHE/etcd-tests-$VERSION
BIN=$OUT/$SUITE/bin

give_up() {
    skip "$SUITE" "$1"
    exit "$2"
}

# one_member: the edit, and whether it took.
one_member() {
    cd "$KEPT/src" || return 1
    local places=(framework/e2e/cluster.go framework/config/cluster.go common/e2e_test.go)
    sed -i 's/\(\tClusterSize: *\)3,$/\11,/; s/ClusterSize: 3, PeerTLS: config.ManualTLS/ClusterSize: 1, PeerTLS: config.ManualTLS/' "${places[@]}"
    local place
    for place in "${places[@]}"; do
        grep -q 'ClusterSize:  *1,' "$place" || return 1
    done
}

# programs: etcdctl, etcdutl and what is to be tested as etcd. WRITE_BASELINE tests etcd itself.
programs() {
    local part path
    while IFS=$'\t' read -r part path _; do
        [ "$path" = SKIPPED ] && return 1
        ln -sf "$path" "$BIN/$part"
    done < <(SLUICE_ETCD_VERSION=$VERSION "$ROOT/e2e/parts/build.sh" etcdctl etcdutl ${WRITE_BASELINE:+etcd})
    if [ -z "${WRITE_BASELINE:-}" ]; then
        ln -sf "$SLUICE" "$BIN/sluice"
        cp "$HERE/etcd-tests/etcd" "$BIN/etcd"
    fi
}

module_copy go.etcd.io/etcd/tests/v3 "$VERSION" "$KEPT/src" >&2 ||
    give_up "the module go.etcd.io/etcd/tests/v3 v$VERSION cannot be had" 0
(one_member) || give_up "the tests name their cluster sizes elsewhere: adapt one_member in $0" 2
flags=()
[ "$PACKAGE" = common ] && flags=(-tags e2e)
test_binary "$KEPT/src" "$PACKAGE" "$KEPT/bin/$PACKAGE.test" "${flags[@]}" >&2 || give_up "its tests cannot be built" 2
mkdir -p "$BIN"
programs || give_up "etcdctl or etcdutl $VERSION cannot be built" 2
mode=()
[ -n "${WRITE_BASELINE:-}" ] && mode=(-write-baseline)
# shellcheck disable=SC2046
E2E_TEST_MINIMAL=true "$RUNNER" -suite "$SUITE" -pkg "$PACKAGE" -binary "$KEPT/bin/$PACKAGE.test" \
    -dir "$KEPT/src/$PACKAGE" -out "$OUT/$SUITE" -run "${RUN:-.}" -limit "${LIMIT:-2m}" \
    -baseline "$HERE/etcd-tests/etcd-$VERSION.tsv" -exceptions "$HERE/etcd-tests/exceptions.tsv" \
    -summary "$SUMMARY" -jobs "$(jobs_at_once)" $(own_network) "${mode[@]}" -- -bin-dir "$BIN"
