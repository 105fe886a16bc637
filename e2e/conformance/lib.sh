# What the suites share: where things are kept, how modules are had, how a suite is skipped.
# Sourced by run.sh and by the suites; not a program.
# shellcheck shell=bash

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
CACHE=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/parts
export HERE ROOT CACHE GOWORK=off GOTOOLCHAIN=local GOFLAGS=-mod=mod

say() { printf '%s\n' "$*" >&2; }

# skip SUITE WHY: a suite that cannot run here says so in the summary.
skip() {
    say "$1: SKIPPED: $2"
    printf '%s\tSKIPPED\t%s\n' "$1" "$2" >>"$SUMMARY"
}

# Paths as the start command of a test's server needs them: quoted for a shell.
quoted() { printf '%q' "$1"; }

# module_copy MODULE VERSION FOLDER: a writable copy of a released module. Upstream's replacements
# by folder are dropped, since the folders are not part of the release.
module_copy() {
    local module=$1 version=$2 folder=$3 json source
    [ -e "$folder/.whole" ] && return
    mkdir -p "$folder.ask" && printf 'module ask\n\ngo 1.26\n' >"$folder.ask/go.mod"
    json=$(cd "$folder.ask" && go mod download -json "$module@v$version") || {
        say "$json"
        return 1
    }
    rm -rf "$folder.ask"
    source=$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$json")
    [ -d "$source" ] || return 1
    rm -rf "$folder" && mkdir -p "$folder" && cp -r "$source/." "$folder/" && chmod -R u+w "$folder" || return 1
    (
        cd "$folder" || exit 1
        sed -n 's/^[[:space:]]*\(replace \)\{0,1\}\([^ ]*\) => \.\..*/\2/p' go.mod |
            while read -r replaced; do go mod edit "-dropreplace=$replaced"; done
        go mod edit -toolchain=none
    ) || return 1
    touch "$folder/.whole"
}

# test_binary FOLDER PACKAGE BINARY [BUILD FLAG...]: compiles a package's tests, once for each state
# of what it is made of. One builder at a time; the machine is left usable.
test_binary() {
    local folder=$1 package=$2 binary=$3 stamp
    shift 3
    stamp="$(go version) $* $(cd "$folder" && find . -name '*.go' -newer .whole -exec cksum {} + | sort | cksum)"
    [ -x "$binary" ] && [ "$(cat "$binary.stamp" 2>/dev/null)" = "$stamp" ] && return
    say "building the tests of $package (once; kept in $(dirname "$binary"))"
    mkdir -p "$(dirname "$binary")"
    (cd "$folder" && nice go test -p "${BUILDS:-1}" -c -vet=off -ldflags '-s -w' "$@" -o "$binary" "./$package") || return 1
    printf '%s\n' "$stamp" >"$binary.stamp"
}

# own_network: prints the runner's flag where a test can have a loopback of its own.
own_network() {
    unshare -rn ip link set lo up 2>/dev/null && printf '%s' -own-network
}

# jobs_at_once: tests share fixed ports where they cannot have a network each.
jobs_at_once() {
    if [ -n "$(own_network)" ]; then printf '%s' "${JOBS:-2}"; else printf 1; fi
}

# in_own_network COMMAND...: with a loopback that nobody else is on, where that can be had.
in_own_network() {
    if [ -n "$(own_network)" ]; then
        # shellcheck disable=SC2016
        unshare -rn sh -c 'ip link set lo up && exec "$0" "$@"' "$@"
    else
        PORT=$((24000 + RANDOM % 4000)) "$@"
    fi
}

# behind_the_gateway SUITE PART...: what a suite of one control plane needs, or a skip. KUBECTL, ETCD
# and so on become the paths; the parts that a suite adds are in MORE_PARTS, as NAME=PART.
behind_the_gateway() {
    local suite=$1 tool pair line path
    shift
    for tool in jq openssl curl timeout "$@"; do
        command -v "$tool" >/dev/null || {
            skip "$suite" "needs $tool"
            return 1
        }
    done
    for pair in KUBECTL=kubectl ETCD=etcd APISERVER=kube-apiserver CONTROLLERS=kube-controller-manager "${MORE_PARTS[@]}"; do
        line=$(SLUICE_K8S_VERSION=$KUBERNETES "$ROOT/e2e/parts/build.sh" "${pair#*=}")
        path=${line#*$'\t'}
        [ -x "$path" ] || {
            skip "$suite" "${path#SKIPPED$'\t'}"
            return 1
        }
        export "${pair%%=*}=$path"
    done
}

# judge SUITE RESULTS BASELINE: a line of the summary. RESULTS begin with verdict and test, BASELINE
# is what the tests did without the gateway, in the same columns; whatever passes there passes here,
# and without RUN is there.
judge() {
    local suite=$1 worse passed failed skipped
    worse=$(awk -F'\t' -v whole="${RUN:+no}" '/^#/ { next }
        NR == FNR { if ($1 == "PASS") base[$2] = 1; next }
        $1 != "PASS" && $2 in base { print $1 "\t" $2 "\t" $NF }
        { delete base[$2] }
        END { if (whole != "no") for (test in base) print "MISSING\t" test }' "$3" "$2")
    passed=$(grep -c '^PASS' "$2") failed=$(grep -c . <<<"$worse") skipped=$(grep -c '^SKIP' "$2")
    printf '%s\t%s\t%s\t%s\t0\n' "$suite" "$passed" "$failed" "$skipped" >>"$SUMMARY"
    [ -z "$worse" ] && [ "$passed" -gt 0 ] && return
    say "$suite: passes without the gateway and did not here:"
    say "$worse"
    return 1
}

# each_way SUITE WHAT BASELINE: drives a suite by each credential and judges it, or, for
# WRITE_BASELINE, without the gateway and keeps what passes there. 0, 1 or 2, as run.sh has it.
each_way() {
    local suite=$1 what=$2 baseline=$3 worst=0 way results
    [ -z "${WRITE_BASELINE:-}" ] || WAYS=direct-token
    for way in ${WAYS:-token certificate}; do
        results=$OUT/$suite-$way
        say "$suite: $way, see $results"
        if ! in_own_network "$HERE/$suite/driver.sh" "$way" "$results"; then
            skip "$suite-$way" "the control plane or the gateway did not start or ended"
            worst=2
            continue
        fi
        if [ -n "${WRITE_BASELINE:-}" ]; then
            {
                echo "# $what on a bare kube-apiserver: verdict, name."
                cut -f1,2 "$results/results.tsv" | sort -k2
            } >"$baseline"
        fi
        judge "$suite-$way" "$results/results.tsv" "$baseline" || [ $worst = 2 ] || worst=1
    done
    return $worst
}
