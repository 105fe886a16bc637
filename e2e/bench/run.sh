#!/usr/bin/env bash
# Measures Sluice beside its peers in one run and prints one JSON line a row, then the ratios.
#
# usage: run.sh [store|lists|gateway]... default: all; the store takes about ten minutes
#   ROUNDS=5 SECONDS_EACH=8 run.sh      more rounds, longer rows
#   SLUICE=/path/to/sluice run.sh       a binary built already
#
# Rules: peers and we take turns within a round; the server under test has core 0, load and origin
# core 1; what is compared is CPU per operation, since client and server share one machine. Every
# row is printed; the ratios are medians over rounds.
set -euo pipefail
cd "$(dirname "$0")/../.."
HERE=e2e/bench
ROUNDS=${ROUNDS:-3}
SECONDS_EACH=${SECONDS_EACH:-4}
OUT=$(mktemp -d)
ROWS=$OUT/rows.jsonl
PIDS=()
cleanup() {
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    [ -d "$OUT/gw" ] && python3 $HERE/gateway-load/gwload.py down "$OUT/gw" || true
    rm -rf "$OUT"
}
trap cleanup EXIT
say() { printf '%s\n' "$*" >&2; }
need() {
    local missing=()
    for tool in "$@"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    [ ${#missing[@]} = 0 ] || { say "SKIPPED: needs ${missing[*]} (on Debian: nginx haproxy nghttp2-client iproute2 gcc openssl python3)"; return 1; }
}
wait_port() {
    for _ in $(seq 200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.05
    done
    say "nothing listens on port $1"
    exit 1
}

if [ -z "${SLUICE:-}" ]; then
    cargo build --locked --release --bin sluice
    SLUICE=$PWD/target/release/sluice
fi

# shellcheck source=e2e/bench/store.sh
. $HERE/store.sh
# shellcheck source=e2e/bench/lists.sh
. $HERE/lists.sh

bench_gateway() {
    need nginx haproxy h2load ss taskset python3 openssl gcc || return 0
    local load="python3 $HERE/gateway-load/gwload.py" base=28030 front=28060 dir=$OUT/gw
    $load gen "$dir" --port-base $base >&2
    $load up "$dir" origin-a haproxy nginx >&2
    taskset -a -c -p 1 "$(cat "$dir/run/origin-a.pid")" >/dev/null
    mkdir -p "$dir/rules"
    cat >"$dir/sluice.yaml" <<YAML
apiVersion: sluice.io/v1alpha1
kind: GatewayConfig
listen:
  address: 127.0.0.1:$front
  tls: { certFile: $dir/pki/front.crt, keyFile: $dir/pki/front.key, clientCAFile: $dir/pki/ca.crt }
admin:
  address: 127.0.0.1:$((front + 1))
  tls: { certFile: $dir/pki/front.crt, keyFile: $dir/pki/front.key, clientCAFile: $dir/pki/ca.crt }
rulesDir: rules
audit: { path: $dir/audit.log }
log: { level: error }
YAML
    cat >"$dir/rules/cluster.yaml" <<YAML
apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: origin }
spec:
  default: true
  endpoints: [ { url: "https://127.0.0.1:$base" } ]
  tls: { caFile: $dir/pki/ca.crt, serverName: localhost }
  credentials: { clientCertFile: $dir/pki/front-client.crt, clientKeyFile: $dir/pki/front-client.key }
  identity: { mode: impersonate }
  clients: { clientCAFile: $dir/pki/ca.crt }
---
apiVersion: sluice.io/v1alpha1
kind: RateRules
metadata: { name: bench }
spec:
  cluster: origin
  rules:
  - name: everybody
    match: { users: ["*"] }
    mode: enforce
    rate: { perSecond: 1000000, burst: 1000000, key: [user] }
YAML
    taskset -c 0 "$SLUICE" run --config "$dir/sluice.yaml" >"$dir/sluice.log" 2>&1 &
    local pid=$!
    PIDS+=("$pid")
    wait_port $front
    local path=/api/v1/namespaces/default/configmaps/cm-0001
    for round in $(seq "$ROUNDS"); do
        for who in direct haproxy nginx sluice; do
            say "round $round of $ROUNDS: gateway, $who"
            local port pids
            case $who in
            direct) port=$base pids="" ;;
            haproxy) port=$((base + 2)) pids="--pid $(cat "$dir/run/haproxy.pid")" ;;
            nginx) port=$((base + 3)) pids="--pid $(cat "$dir/run/nginx.pid")" ;;
            sluice) port=$front pids="--pid $pid" ;;
            esac
            $load measure "$dir" --url "https://origin.local:$port$path" --to "127.0.0.1:$port" $pids \
                --proto h2 --rates 0,1000,3000,5000 --seconds "$SECONDS_EACH" --idle 1 \
                --pin-server 0 --pin-load 1 --upstream-ports $base --label $who | tee -a "$ROWS"
        done
    done
}

: >"$ROWS"
[ $# -gt 0 ] || set -- store lists gateway
for part in "$@"; do "bench_$part"; done
python3 $HERE/ratios.py "$ROWS"
