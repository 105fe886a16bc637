#!/usr/bin/env bash
# Builds or finds the real parts the suites run against, pinned by version, in a
# cache outside the checkout. Prints one line per part: NAME<TAB>PATH, or
# NAME<TAB>SKIPPED<TAB>why. Never fails for a part that cannot be had; the gate
# decides whether a SKIPPED was expected.
#
# usage: build.sh PART...
# parts: kube-apiserver kubectl kube-controller-manager kube-scheduler kwok etcd etcdctl etcdutl
#        benchmark kubectl-convert
#        e2e.test (Kubernetes' e2e tests, one program)
#        loop protobuf informer (the suites' own clients, from e2e/clients)
#        nodelet (a kubelet's streams, from e2e/nodelet)
# Another Kubernetes: SLUICE_K8S_VERSION=1.37.2 build.sh kube-apiserver
set -u

K8S_VERSION=${SLUICE_K8S_VERSION:-1.36.2}
ETCD_VERSION=${SLUICE_ETCD_VERSION:-3.7.3}
BENCHMARK_VERSION=${SLUICE_BENCHMARK_VERSION:-3.6.8}
KWOK_VERSION=${SLUICE_KWOK_VERSION:-0.8.0}
CACHE=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/parts

say() { printf '%s\n' "$*" >&2; }
skipped() { printf '%s\tSKIPPED\t%s\n' "$1" "$2"; }

# build_in NAME VERSION MODULE_FILE_WRITER PACKAGE LDFLAGS
build_part() {
    local name=$1 version=$2 writer=$3 package=$4 ldflags=$5
    local dir=$CACHE/$name-$version
    local bin=$dir/$name
    if [ -x "$bin" ]; then
        printf '%s\t%s\n' "$name" "$bin"
        return
    fi
    if ! command -v go >/dev/null 2>&1; then
        skipped "$name" "no Go toolchain on PATH and $bin is not cached"
        return
    fi
    mkdir -p "$dir" || { skipped "$name" "cannot create $dir"; return; }
    # One builder at a time for a part: two suites may ask at once.
    exec 9>"$dir/lock"
    flock 9
    if [ ! -x "$bin" ]; then
        local src=$CACHE/src-$writer-$version
        mkdir -p "$src"
        say "building $name $version (once; cached in $dir)"
        local log=$dir/build.log
        # A package of tests is compiled to a program, too.
        local compile=(go build)
        case $name in *.test) compile=(go test -c -vet=off) ;; esac
        if "$writer" "$src" "$version" >"$log" 2>&1 &&
            (cd "$src" && CGO_ENABLED=0 GOFLAGS=-mod=mod "${compile[@]}" -trimpath \
                -ldflags "-s -w $ldflags" -o "$bin.tmp" "$package") >>"$log" 2>&1 &&
            mv "$bin.tmp" "$bin"; then
            say "built $name $version"
        else
            tail -n 5 "$log" >&2
            flock -u 9
            skipped "$name" "go build failed, see $log"
            return
        fi
    fi
    flock -u 9
    printf '%s\t%s\n' "$name" "$bin"
}

# k8s.io/kubernetes asks for its staging modules at v0.0.0 with replacements by
# folder; a consumer redoes them with the published versions.
kubernetes_module() {
    local src=$1 version=$2
    local staging=v0.${version#1.}
    [ -s "$src/go.mod" ] && [ -s "$src/ready" ] && return 0
    (
        cd "$src" || exit 1
        local upstream
        upstream=$(go mod download -json "k8s.io/kubernetes@v$version" |
            sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
        [ -s "$upstream" ] || exit 1
        {
            echo "module parts"
            grep -E '^go ' "$upstream"
            grep -E '^godebug ' "$upstream"
            sed -n '/^godebug (/,/^)/p' "$upstream"
            echo "require k8s.io/kubernetes v$version"
            grep -oE 'k8s\.io/[a-z0-9-]+ v0\.0\.0$' "$upstream" | sort -u |
                while read -r module _; do echo "replace $module => $module $staging"; done
        } >go.mod
        echo 1 >ready
    )
}

etcd_module() {
    local src=$1 version=$2
    cat >"$src/go.mod" <<MOD
module parts
go 1.26
require (
    go.etcd.io/etcd/server/v3 v$version
    go.etcd.io/etcd/etcdctl/v3 v$version
    go.etcd.io/etcd/etcdutl/v3 v$version
)
MOD
}

benchmark_module() {
    local src=$1 version=$2
    printf 'module parts\ngo 1.26\nrequire go.etcd.io/etcd/v3 v%s\n' "$version" >"$src/go.mod"
}

kwok_module() {
    local src=$1 version=$2
    printf 'module parts\ngo 1.26\nrequire sigs.k8s.io/kwok v%s\n' "$version" >"$src/go.mod"
}

# Our own clients: the checkout is the source, and their digest the version.
CLIENTS=$(cd "$(dirname "$0")/../clients" && pwd)
clients_version() {
    cat "$CLIENTS"/go.mod "$CLIENTS"/go.sum "$CLIENTS"/*/*.go | sha256sum | cut -c1-16
}

clients_module() {
    cp -r "$CLIENTS"/. "$1"/
}

# A kubelet's streaming half, from the checkout as well.
NODELET=$(cd "$(dirname "$0")/../nodelet" && pwd)
nodelet_version() {
    cat "$NODELET"/go.mod "$NODELET"/go.sum "$NODELET"/*.go | sha256sum | cut -c1-16
}

nodelet_module() {
    cp -r "$NODELET"/. "$1"/
}

k8s_ldflags() {
    local minor=${K8S_VERSION#1.}
    minor=${minor%%.*}
    local base=k8s.io/component-base/version
    local client=k8s.io/client-go/pkg/version
    local flags="" package
    for package in "$base" "$client"; do
        flags="$flags -X $package.gitVersion=v$K8S_VERSION -X $package.gitMajor=1 -X $package.gitMinor=$minor"
    done
    printf '%s' "$flags"
}

for part in "$@"; do
    case $part in
    kube-apiserver | kubectl | kubectl-convert | kube-controller-manager | kube-scheduler)
        build_part "$part" "$K8S_VERSION" kubernetes_module "k8s.io/kubernetes/cmd/$part" "$(k8s_ldflags)" ;;
    e2e.test) build_part "$part" "$K8S_VERSION" kubernetes_module k8s.io/kubernetes/test/e2e "$(k8s_ldflags)" ;;
    etcd) build_part etcd "$ETCD_VERSION" etcd_module go.etcd.io/etcd/server/v3 "" ;;
    etcdctl) build_part etcdctl "$ETCD_VERSION" etcd_module go.etcd.io/etcd/etcdctl/v3 "" ;;
    etcdutl) build_part etcdutl "$ETCD_VERSION" etcd_module go.etcd.io/etcd/etcdutl/v3 "" ;;
    benchmark) build_part benchmark "$BENCHMARK_VERSION" benchmark_module go.etcd.io/etcd/v3/tools/benchmark "" ;;
    kwok) build_part kwok "$KWOK_VERSION" kwok_module sigs.k8s.io/kwok/cmd/kwok "" ;;
    loop | protobuf | informer) build_part "$part" "$(clients_version)" clients_module "./$part" "" ;;
    nodelet) build_part nodelet "$(nodelet_version)" nodelet_module . "" ;;
    *) say "unknown part: $part"; exit 2 ;;
    esac
done
