#!/usr/bin/env bash
# etcd's robustness traffic, model and validators against the store, killed with SIGKILL and started
# again on its directory meanwhile (main.go says what is etcd's and what is ours).
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${OUT:?}" "${SUMMARY:?}"

source=$HERE/etcd-robustness
digest=$(cat "$source"/*.go "$source"/go.* | sha256sum | cut -c1-16)
program=$CACHE/robustness-$digest/robustness
if [ ! -x "$program" ]; then
    say "building the robustness traffic (once; kept in $(dirname "$program"))"
    mkdir -p "$(dirname "$program")"
    if ! (cd "$source" && nice go build -p "${BUILDS:-1}" -o "$program" .) >&2; then
        skip etcd-robustness "etcd's modules cannot be had or built"
        exit 2
    fi
fi

# A loopback of its own where that can be had, else ports that are most likely free.
network=() port=23100
if [ -n "$(own_network)" ]; then
    # shellcheck disable=SC2016
    network=(unshare -rn sh -c 'ip link set lo up && exec "$0" "$@"')
else
    port=$((24000 + RANDOM % 4000))
fi
# etcd's own deadline of a call is 200 ms. What ends in an error may or may not have happened, and
# makes the search for an order longer, so a machine that other things run on gets twice that.
"${network[@]}" "$program" --summary "$SUMMARY" --out "$OUT/etcd-robustness" --port "$port" \
    --start "exec $(quoted "$SLUICE") metastore serve --data-dir {DIR} --insecure-loopback --listen-client-urls http://127.0.0.1:{CPORT} --watch-progress-notify-interval 100ms --log-level warn" \
    --traffic "${TRAFFIC:-kubernetes,kubernetes-create-delete,etcd,etcd-put,etcd-delete}" \
    --seconds "${SECONDS_EACH:-20}" --rounds "${ROUNDS:-3}" --seed "${SEED:-1}" \
    --kill-every 5 --op-timeout-ms 400
