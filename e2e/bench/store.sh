# The store beside etcd: every axis of the table, read by `run.sh`.
#
# Four groups, so that each server is started as seldom as fairness allows:
#   writes   fresh directories each round; etcd and we in turn, the order turned round every round
#   lists    one directory each for all rounds, 118,000 and 200,000 keys
#   pauses   1,000,000 versions of 10,000 keys: writes before, and from the moment all but the newest
#            are compacted away
#   memory   1,000,000 keys of 512 bytes once: resident memory, then the time of a restart; ours
#            also with a memory limit of a quarter of the values
# STORE_GROUPS names those wanted, of these four.
# The server under test has core 0, the driver core 1; both sync every write.
# shellcheck shell=bash

WATCHERS=${WATCHERS:-1000}
MEMORY_KEYS=${MEMORY_KEYS:-1000000}
OLD_VERSIONS=${OLD_VERSIONS:-1000000}
STORE_GROUPS=${STORE_GROUPS:-writes lists pauses memory}
# Flags of ours that a row wants besides.
OWN_FLAGS=()

# serve SERVER DIRECTORY: starts it; sets PID and URL once it answers.
serve() {
    local server=$1 data=$2 port=$((24000 + RANDOM % 4000))
    URL=http://127.0.0.1:$port
    mkdir -p "$data"
    if [ "$server" = etcd ]; then
        local peer=http://127.0.0.1:$((port + 1))
        taskset -c 0 "$ETCD" --data-dir "$data" --log-level error --quota-backend-bytes $((8 << 30)) \
            --listen-client-urls "$URL" --advertise-client-urls "$URL" --listen-peer-urls "$peer" \
            --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" >>"$data.log" 2>&1 &
    else
        taskset -c 0 "$SLUICE" metastore serve --data-dir "$data" --insecure-loopback --quota-backend-bytes $((8 << 30)) \
            --listen-client-urls "$URL" --log-level error "${OWN_FLAGS[@]}" >>"$data.log" 2>&1 &
    fi
    PID=$!
    PIDS+=("$PID")
    for _ in $(seq 2400); do
        curl -sf "$URL/health" >/dev/null 2>&1 && return
        kill -0 "$PID" 2>/dev/null || break
        sleep 0.05
    done
    say "$server did not come up:"
    tail -n 5 "$data.log" >&2
    exit 1
}

halt() {
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# load SERVER CASE OPTION...: one row.
load() {
    local server=$1 case=$2
    shift 2
    taskset -c 1 "$OUT/store-load" --endpoint "$URL" --pid "$PID" --label "$server" --case "$case" \
        --seconds "$SECONDS_EACH" "$@" | tee -a "$ROWS"
}

store_writes() {
    local server=$1 data=$OUT/writes-$1-$2
    serve "$server" "$data"
    load "$server" "create, 100 clients" --shape create --clients 100 --connections 1
    load "$server" "create, 300 clients" --shape create --clients 300 --connections 20
    load "$server" "update, 100 clients" --shape update --clients 100 --connections 1
    load "$server" "update, 300 clients" --shape update --clients 300 --connections 20
    load "$server" "update at 1,000/s" --shape update --clients 100 --connections 1 --rate 1000
    load "$server" "get, 100 clients" --shape get --clients 100 --connections 1
    load "$server" "put, 1 client" --shape put --clients 1 --connections 1
    load "$server" "watch, single" --shape watch --clients 10 --keys 1000 --connections 10 \
        --watchers "$WATCHERS" --watch-streams 10 --rate 20
    load "$server" "watch, batched" --shape watch --clients 1 --keys 1000 --connections 10 \
        --watchers "$WATCHERS" --watch-streams 10 --rate 2 --batch 100 --prev-kv=false
    halt "$PID"
    rm -rf "$data"
}

# store_lists SERVER begin|measure: starts and fills it, or measures it once.
store_lists() {
    local server=$1 phase=$2
    if [ "$phase" = begin ]; then
        serve "$server" "$OUT/lists-$server"
        taskset -c 1 "$OUT/store-load" --endpoint "$URL" --shape preload --keys 118000 --batch 100 >/dev/null
        taskset -c 1 "$OUT/store-load" --endpoint "$URL" --shape preload --keys 200000 --batch 100 \
            --prefix /registry/events/ --value-size 64 >/dev/null
        LIST_PID[$server]=$PID
        LIST_URL[$server]=$URL
        return
    fi
    PID=${LIST_PID[$server]} URL=${LIST_URL[$server]}
    load "$server" "range limit 500 in 118k" --shape list --clients 1 --keys 118000
    load "$server" "get, 1 client" --shape get --clients 1 --keys 118000
    load "$server" "count of 200k" --shape count --clients 1 --keys 200000 --prefix /registry/events/
}

store_pauses() {
    local server=$1 data=$OUT/pauses-$1-$2
    local writes=(--shape update --clients 100 --connections 1 --keys 10000 --rate 1000)
    serve "$server" "$data"
    taskset -c 1 "$OUT/store-load" --endpoint "$URL" --shape versions --versions "$OLD_VERSIONS" --keys 10000 \
        --batch 100 --clients 16 --connections 4 >/dev/null
    sleep 3
    load "$server" "1,000/s, old versions" "${writes[@]}"
    load "$server" "1,000/s, compacting" "${writes[@]}" --compact
    halt "$PID"
    rm -rf "$data"
}

store_memory() {
    local case="memory of $MEMORY_KEYS keys" limited="$MEMORY_KEYS keys, limited"
    measure_memory "$1" "$case"
    case $1 in
    # It has no such limit: the same figures stand beside both of ours.
    etcd) tail -n 1 "$ROWS" | sed "s/\"$case\"/\"$limited\"/" | tee -a "$ROWS" ;;
    sluice)
        OWN_FLAGS=(--memory-limit-bytes $((MEMORY_KEYS * 512 / 4)))
        measure_memory "$1" "$limited"
        OWN_FLAGS=()
        ;;
    esac
}

# measure_memory SERVER CASE: one row.
measure_memory() {
    local server=$1 case=$2 data=$OUT/memory-$1 begun rss
    serve "$server" "$data"
    taskset -c 1 "$OUT/store-load" --endpoint "$URL" --shape preload --keys "$MEMORY_KEYS" --batch 100 >/dev/null
    sleep 5
    rss=$(awk '/VmRSS/ {print int($2 / 1024)}' "/proc/$PID/status")
    halt "$PID"
    begun=$(date +%s%N)
    serve "$server" "$data"
    printf '{"label":"%s","case":"%s","rss_mib":%s,"restart_s":%s}\n' "$server" "$case" "$rss" \
        "$(awk -v ns=$(($(date +%s%N) - begun)) 'BEGIN {printf "%.3f", ns / 1e9}')" | tee -a "$ROWS"
    halt "$PID"
    rm -rf "$data"
}

# each ROUND FUNCTION ARGUMENT...: for both servers, who goes first by the round.
each() {
    local round=$1 do=$2
    shift 2
    local order="etcd sluice"
    [ $((round % 2)) = 1 ] || order="sluice etcd"
    for server in $order; do
        say "round $round of $ROUNDS: store, $do, $server (load average $(cut -d' ' -f1-2 /proc/loadavg))"
        "$do" "$server" "$@"
    done
}

bench_store() {
    need go taskset curl || return 0
    ETCD=$(e2e/parts/build.sh etcd | cut -f2)
    [ -x "$ETCD" ] || { say "SKIPPED: no etcd to measure beside"; return 0; }
    (cd $HERE/store-load && go build -o "$OUT/store-load" .)
    say "$("$ETCD" --version | head -1); $("$SLUICE" --version); $(nproc) cores, $(uname -sr)"
    "$OUT/store-load" --shape sync --dir "$OUT" --seconds 2 --case "sync of 4 KiB" | tee -a "$ROWS"
    declare -A LIST_PID LIST_URL
    if wants lists; then each 1 store_lists begin; fi
    for round in $(seq "$ROUNDS"); do
        if wants writes; then each "$round" store_writes "$round"; fi
        if wants lists; then each "$round" store_lists measure; fi
        if wants pauses; then each "$round" store_pauses "$round"; fi
    done
    if wants lists; then
        halt "${LIST_PID[etcd]}"
        halt "${LIST_PID[sluice]}"
    fi
    if wants memory; then each 1 store_memory; fi
}

# wants GROUP: whether it is among those to be measured.
wants() {
    case " $STORE_GROUPS " in
    *" $1 "*) return 0 ;;
    *) return 1 ;;
    esac
}
