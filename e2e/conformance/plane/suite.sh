#!/usr/bin/env bash
# A whole control plane on the store, and one behind the gateway, for each Kubernetes version:
# e2e/tests/plane and e2e/tests/behind with their long tests. Unlike the other suites these are
# ours; what runs in them is Kubernetes'.
#
# PLANE_SECONDS=180   how long each long test goes on
# PLANE_VERSIONS="1.36.2 1.35.4 1.37.2"
# RUN=NAME            only tests whose name contains it
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${OUT:?}" "${SUMMARY:?}"

# The suite builds its parts itself, with flags of its own. The whole workspace's, as `make test`
# does: for one package the dependencies would be built once more, with other features.
unset GOFLAGS
worst=0 upgraded=
for version in ${PLANE_VERSIONS:-1.36.2 1.35.4 1.37.2}; do
    log=$OUT/plane-$version.log
    # The upgrade and the mixture are over all versions: once is enough.
    without=(${upgraded:+--skip apiservers_are_upgraded --skip apiservers_of_two_versions})
    say "plane: Kubernetes $version, see $log"
    (cd "$ROOT" && SLUICE_EXPECT_PARTS=1 SLUICE_K8S_VERSION=$version SLUICE_PLANE_SECONDS=${PLANE_SECONDS:-180} \
        cargo test --locked --workspace --no-fail-fast --test plane --test behind -- --nocapture --test-threads=1 \
        ${RUN:+"$RUN"} "${without[@]}") >"$log" 2>&1 || worst=1
    upgraded=1
    # "test NAME ... ok", but what a test says stands between.
    # Both targets' lines; none at all is a failure.
    awk -v version="$version" '
        /^test result: / { seen = 1; for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1) } }
        END { printf "plane-%s\t%d\t%d\t0\t0\n", version, passed, seen ? failed : 1 }
    ' "$log" >>"$SUMMARY"
done
exit $worst
