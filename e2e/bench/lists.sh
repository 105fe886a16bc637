# A consistent list of a quiet resource through a real kube-apiserver, on etcd and on Sluice in
# turn, read by `run.sh`.
#
#   UNRELATED=500           writes a second that concern no list, straight to the store
#   APISERVERS=1            how many kube-apiservers share the store; the first is asked
#   SLUICE_K8S_VERSION=...  of which version
#
# The store has core 0, the apiservers and the lister core 1. The writer is where there is room: bound
# to the store's core it keeps the store from its answers for a turn of the scheduler, 3 ms.
# shellcheck shell=bash

UNRELATED=${UNRELATED:-500}
APISERVERS=${APISERVERS:-1}
LISTS_TOKEN=lists

# apiserver DIRECTORY: starts one on $URL; sets SERVER once it is ready.
apiserver() {
    local dir=$1 port=$((28000 + RANDOM % 4000))
    mkdir -p "$dir"
    openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
    printf '%s,admin,1,"system:masters"\n' "$LISTS_TOKEN" >"$dir/tokens.csv"
    SERVER=https://127.0.0.1:$port
    taskset -c 1 "$APISERVER" --etcd-servers "$URL" --cert-dir "$dir" --secure-port "$port" --bind-address 127.0.0.1 \
        --service-account-key-file "$dir/sa.key" --service-account-signing-key-file "$dir/sa.key" \
        --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range 10.0.0.0/24 \
        --authorization-mode RBAC --token-auth-file "$dir/tokens.csv" --endpoint-reconciler-type none \
        --enable-priority-and-fairness=false >"$dir/log" 2>&1 &
    APISERVER_PIDS+=("$!")
    PIDS+=("$!")
    for _ in $(seq 2400); do
        curl -skf -H "Authorization: Bearer $LISTS_TOKEN" "$SERVER/readyz" >/dev/null 2>&1 && return
        kill -0 "${APISERVER_PIDS[-1]}" 2>/dev/null || break
        sleep 0.05
    done
    say "kube-apiserver did not become ready:"
    tail -n 5 "$dir/log" >&2
    exit 1
}

# ask SERVER CASE OPTION...: one row.
ask() {
    local server=$1 case=$2
    shift 2
    taskset -c 1 "$OUT/consistent-list" --server "$FIRST" --token "$LISTS_TOKEN" --pid "$PID" --label "$server" \
        --case "$case" --seconds "$SECONDS_EACH" "$@" | tee -a "$ROWS"
}

lists_measure() {
    local server=$1 data=$OUT/asked-$1-$2 writer
    APISERVER_PIDS=()
    serve "$server" "$data"
    for n in $(seq "$APISERVERS"); do
        apiserver "$data-apiserver-$n"
        [ "$n" = 1 ] && FIRST=$SERVER
    done
    # Its first half minute an apiserver writes for itself.
    sleep "${SETTLE:-20}"
    ask "$server" "list, quiet store"
    "$OUT/store-load" --endpoint "$URL" --label "$server" --case "unrelated writes" --shape update \
        --clients 20 --keys 500 --prefix /unrelated/ --rate "$UNRELATED" --seconds $((2 * SECONDS_EACH + 4)) >>"$ROWS" &
    writer=$!
    sleep 2
    ask "$server" "list, busy store"
    ask "$server" "list, busy, each 250 ms" --every 250ms
    wait "$writer"
    for pid in "${APISERVER_PIDS[@]}"; do halt "$pid"; done
    halt "$PID"
    rm -rf "$data" "$data"-*
}

bench_lists() {
    need go taskset curl openssl || return 0
    ETCD=$(e2e/parts/build.sh etcd | cut -f2)
    APISERVER=$(e2e/parts/build.sh kube-apiserver | cut -f2)
    (cd $HERE/store-load && go build -o "$OUT/store-load" .)
    (cd $HERE/consistent-list && go build -o "$OUT/consistent-list" .)
    say "$("$ETCD" --version | head -1); $("$SLUICE" --version); $APISERVERS of $("$APISERVER" --version)"
    for round in $(seq "$ROUNDS"); do each "$round" lists_measure "$round"; done
}
