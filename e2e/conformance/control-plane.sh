# A control plane of one apiserver, and the gateway in front of it, for suites that are to find no
# difference between the two. Sourced by their drivers; not a program. All is written below DIR; what
# was started is in STARTED. ETCD APISERVER CONTROLLERS KUBECTL SLUICE are paths.
# shellcheck shell=bash

STARTED=() APISERVER_FLAGS=() CONTROLLER_FLAGS=()
DOCUMENTS=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)

# wait_for NAME PID URL: until it answers a user whom the apiserver knows, or its process has ended.
wait_for() {
    local n
    for ((n = 0; n < 240; n++)); do
        if curl -gkfs --max-time 2 -H 'Authorization: Bearer admin-token' -o /dev/null "$3"; then return 0; fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.5
    done
    echo "$1 does not answer; the end of its log:" >&2
    tail -n 20 "$DIR/$1.log" >&2
    return 1
}

# start NAME URL COMMAND...: in the background, until URL answers.
start() {
    local name=$1 url=$2
    shift 2
    "$@" >"$DIR/$name.log" 2>&1 </dev/null &
    STARTED+=($!)
    wait_for "$name" $! "$url"
}

# stop: in the order opposite to the start.
stop() {
    local at n pid
    for ((at = ${#STARTED[@]} - 1; at >= 0; at--)); do
        pid=${STARTED[at]}
        kill "$pid" 2>/dev/null
        for ((n = 0; n < 40; n++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.25
        done
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    STARTED=()
}

# kubeconfig FILE PORT USER: with the names that Kubernetes' kubectl suite uses; USER is JSON.
kubeconfig() {
    cat >"$1" <<CONFIG
{"apiVersion": "v1", "kind": "Config", "current-context": "test",
 "clusters": [{"name": "local", "cluster": {"server": "https://127.0.0.1:$2", "insecure-skip-tls-verify": true}}],
 "users": [{"name": "test-admin", "user": $3}],
 "contexts": [{"name": "test", "context": {"cluster": "local", "user": "test-admin"}}]}
CONFIG
}

# issue CA NAME SUBJECT: a certificate and key in DIR/NAME.{crt,key}, signed by CA.{crt,key}.
issue() {
    openssl req -newkey rsa:2048 -nodes -subj "$3" -keyout "$DIR/$2.key" -out "$DIR/$2.csr" 2>/dev/null &&
        printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n' >"$DIR/$2.ext" &&
        openssl x509 -req -in "$DIR/$2.csr" -CA "$1.crt" -CAkey "$1.key" -set_serial "0x$(openssl rand -hex 8)" \
            -days 2 -extfile "$DIR/$2.ext" -out "$DIR/$2.crt" 2>/dev/null
}

# authority NAME: a CA of our own in DIR/NAME.{crt,key}.
authority() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$DIR/$1.key" -out "$DIR/$1.crt" 2>/dev/null
}

# control_plane CA PORT: etcd on PORT and PORT+1, the apiserver on PORT+2, the controllers on PORT+3.
# CA names the authority of its clients, without .crt and .key; its administrator's kubeconfig is
# DIR/direct.json. Further flags are in APISERVER_FLAGS and CONTROLLER_FLAGS.
control_plane() {
    local ca=$1 port=$2
    mkdir -p "$DIR/certs"
    openssl genrsa -out "$DIR/sa.key" 2048 2>/dev/null || return 1
    echo 'admin-token,admin,admin,system:masters' >"$DIR/tokens.csv"
    authority serving-ca && issue "$DIR/serving-ca" apiserver /CN=kube-apiserver || return 1
    start etcd "http://127.0.0.1:$port/health" "$ETCD" --data-dir "$DIR/etcd" --unsafe-no-fsync --log-level warn \
        --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
        --listen-peer-urls "http://127.0.0.1:$((port + 1))" \
        --initial-advertise-peer-urls "http://127.0.0.1:$((port + 1))" \
        --initial-cluster "default=http://127.0.0.1:$((port + 1))" || return 1
    # The advertised address has to be none of the loopback, and nobody calls it.
    start apiserver "https://127.0.0.1:$((port + 2))/readyz" \
        env KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true "$APISERVER" \
        --bind-address=127.0.0.1 --advertise-address=192.0.2.1 --secure-port=$((port + 2)) \
        --etcd-servers="http://127.0.0.1:$port" --service-cluster-ip-range=10.0.0.0/24 \
        --service-account-key-file="$DIR/sa.key" --service-account-signing-key-file="$DIR/sa.key" \
        --service-account-lookup=true --service-account-issuer=https://kubernetes.default.svc \
        --cert-dir="$DIR/certs" --tls-cert-file="$DIR/apiserver.crt" --tls-private-key-file="$DIR/apiserver.key" \
        --client-ca-file="$ca.crt" --token-auth-file="$DIR/tokens.csv" "${APISERVER_FLAGS[@]}" || return 1
    kubeconfig "$DIR/direct.json" $((port + 2)) '{"token": "admin-token"}'
    start controllers "https://127.0.0.1:$((port + 3))/healthz" "$CONTROLLERS" \
        --bind-address=127.0.0.1 --secure-port=$((port + 3)) --cert-dir="$DIR/certs" --leader-elect=false \
        --cluster-signing-cert-file="$ca.crt" --cluster-signing-key-file="$ca.key" \
        --kubeconfig="$DIR/direct.json" "${CONTROLLER_FLAGS[@]}"
}

# administer: as the administrator, and not through the gateway.
administer() {
    env -u KUBECONFIG HOME="$DIR" "$KUBECTL" --kubeconfig "$DIR/direct.json" --request-timeout=20s "$@"
}

# gateway CA PORT: on PORT+4, before the control plane of PORT. It is the user sluice-gateway there
# and may do what docs/identity.md names, no more.
gateway() {
    local ca=$1 port=$2
    # The role is the page's own, so that it is true.
    sed -n '/^apiVersion: rbac/,/^```$/{ /^```$/!p }' "$DOCUMENTS/identity.md" | administer apply -f - >/dev/null &&
        administer create clusterrolebinding sluice-impersonates --clusterrole=sluice-impersonates \
            --user=sluice-gateway >/dev/null &&
        administer create clusterrolebinding sluice-asks --clusterrole=system:auth-delegator \
            --user=sluice-gateway >/dev/null || return 1
    authority front-ca && issue "$DIR/front-ca" front /CN=sluice && issue "$ca" sluice-gateway /CN=sluice-gateway ||
        return 1
    mkdir -p "$DIR/rules"
    cat >"$DIR/sluice.yaml" <<CONFIG
apiVersion: sluice.io/v1alpha1
kind: GatewayConfig
listen:
  address: 127.0.0.1:$((port + 4))
  tls: { certFile: front.crt, keyFile: front.key }
rulesDir: rules
log: { level: info, format: text }
CONFIG
    cat >"$DIR/rules/cluster.yaml" <<CONFIG
apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: main }
spec:
  default: true
  endpoints:
  - url: https://127.0.0.1:$((port + 2))
  tls: { caFile: ../serving-ca.crt }
  credentials: { clientCertFile: ../sluice-gateway.crt, clientKeyFile: ../sluice-gateway.key }
  identity: { mode: impersonate }
  clients:
    clientCAFile: $ca.crt
    tokenReview: {}
CONFIG
    start sluice "https://127.0.0.1:$((port + 4))/readyz" "$SLUICE" run --config "$DIR/sluice.yaml"
}

# client_of WAY CA: the administrator by token or certificate, as the user of a kubeconfig.
client_of() {
    case $1 in
    *certificate)
        issue "$2" admin /O=system:masters/CN=admin || return 1
        printf '{"client-certificate": "%s", "client-key": "%s"}' "$DIR/admin.crt" "$DIR/admin.key"
        ;;
    *) printf '{"token": "admin-token"}' ;;
    esac
}

# ready WAY CA PORT: all of it, and DIR/client.json for whoever is to talk to it by WAY:
# direct-token, direct-certificate, or token, certificate through the gateway. FRONT is their port.
ready() {
    local way=$1 ca=$2 port=$3 user
    FRONT=$((port + 2))
    control_plane "$ca" "$port" || return 1
    case $way in
    direct-*) ;;
    *) gateway "$ca" "$port" && FRONT=$((port + 4)) || return 1 ;;
    esac
    user=$(client_of "$way" "$ca") && kubeconfig "$DIR/client.json" "$FRONT" "$user"
}
