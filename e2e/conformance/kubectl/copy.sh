# A copy of Kubernetes' suite that runs group by group: what is cut out, and what is put in its place.
# Sourced by driver.sh; not a program. Nothing of Kubernetes' code is kept in this tree.
# shellcheck shell=bash

# suite_groups SOURCE: the groups of runTests in their order. The checks that runTests makes itself,
# between its groups, are groups named run_inline_*.
suite_groups() {
    awk '/^runTests\(\)/ { on = 1 } !on { next }
        /^  # find all resources$/ { print "run_inline_find_all_resources" }
        /^  # kubectl auth can-i$/ { print "run_inline_auth_can_i" }
        /^  # kubectl auth reconcile$/ { print "run_inline_auth_reconcile" }
        match($0, /record_command run_[A-Za-z0-9_]+/) { print substr($0, RSTART + 15, RLENGTH - 15) }' \
        "$1/test/cmd/legacy-script.sh"
}

# copy_suite SOURCE COPY SCRATCH KUBECTL KUBECTL_CONVERT: the copy, fitted. SCRATCH takes the place
# of /tmp, so that two runs do not meet there.
copy_suite() {
    local source=$1 copy=$2 scratch=$3 legacy=$2/test/cmd/legacy-script.sh
    mkdir -p "$copy/hack" "$copy/test/e2e" "$copy/_output/bin"
    cp -r "$source/hack/lib" "$source/hack/testdata" "$copy/hack/"
    cp -r "$source/test/cmd" "$source/test/fixtures" "$copy/test/"
    cp -r "$source/test/e2e/testing-manifests" "$copy/test/e2e/"
    chmod -R u+w "$copy"
    # A released module carries no execute bits, and the plugins of the fixtures need them.
    find "$copy" -type f -exec sh -c \
        'for f; do [ "$(head -c 2 "$f" | tr -d "\0")" = "#!" ] && chmod +x "$f"; done; :' sh {} +
    ln -s "$4" "$copy/_output/bin/kubectl"
    ln -s "$5" "$copy/_output/bin/kubectl-convert"

    local mark
    for mark in '^# include shell2junit library' '^# Stops the running kubectl proxy' \
        '^  # find all resources$' '^  # kubectl auth can-i$' '^  # kubectl auth reconcile$'; do
        grep -q -- "$mark" "$legacy" || {
            echo "the suite of this version has no line '$mark': copy.sh must be revised" >&2
            return 1
        }
    done
    sed -n 's/^  \(export [a-z_0-9]*=.*\)$/\1/p' "$legacy" >"$copy/suite-fields.sh"
    {
        inline_group "$legacy" run_inline_find_all_resources '^  # find all resources$' '^  ####'
        inline_group "$legacy" run_inline_auth_can_i '^  # kubectl auth can-i$' '^  # kubectl auth reconcile$'
        inline_group "$legacy" run_inline_auth_reconcile '^  # kubectl auth reconcile$' '^  ####'
    } >"$copy/suite-inline.sh"
    # Its recorder of results, which writes to a place of its own and runs a canary when sourced.
    sed -i '/^# include shell2junit library/,/^# Stops the running kubectl proxy/d' "$legacy"
    sed -i "s|\([^-]\)/tmp/|\1$scratch/|g" "$copy"/test/cmd/*.sh
}

# inline_group FILE NAME FROM TO: the lines between two patterns, as a group.
inline_group() {
    printf '%s() {\n  set -o nounset; set -o errexit\n' "$2"
    awk -v from="$3" -v to="$4" '$0 ~ from { on = 1 } on && $0 ~ to { exit } on' "$1"
    printf '  set +o nounset; set +o errexit\n}\n'
}

# serve_manifests COPY: one group makes objects of a manifest from the internet. It is had from here
# instead: over HTTP where there is a python3, which leaves its process id in MANIFESTS, else as a file.
serve_manifests() {
    local copy=$1 place=hack/testdata/ port
    MANIFESTS=
    if command -v python3 >/dev/null; then
        for port in $(seq 25950 25989 | shuf); do
            python3 -m http.server --bind 127.0.0.1 --directory "$copy/hack/testdata" "$port" >/dev/null 2>&1 </dev/null &
            MANIFESTS=$!
            if curl -fs --retry 20 --retry-delay 1 --retry-connrefused -o /dev/null "http://127.0.0.1:$port/pod.yaml" &&
                kill -0 "$MANIFESTS" 2>/dev/null; then
                place=http://127.0.0.1:$port/
                break
            fi
            kill "$MANIFESTS" 2>/dev/null
            MANIFESTS=
        done
    fi
    sed -i -E "s|https://[^ ]*/hack/testdata/|$place|g" "$copy"/test/cmd/*.sh
}
