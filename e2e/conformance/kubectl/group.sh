#!/usr/bin/env bash
# Runs one group of the suite in this shell, after a start-up in place of the suite's own.
# Called by driver.sh with a fitted copy of the suite (copy.sh).
#
# usage: group.sh GROUP    COPY, SECURE_API_PORT, KUBECONFIG_FILE and TMPDIR in the environment
# Exit: 0 passed, 78 there is no such group, else failed.
set -o errexit -o nounset -o pipefail

cd "$COPY"
# A terminal type for tput, and the verbosity that prints where a command failed.
export TERM=xterm KUBE_VERBOSE=4
# shellcheck source=/dev/null
{
    source hack/lib/init.sh
    source hack/lib/test.sh
    source test/cmd/legacy-script.sh
}

# What the suite's own start-up and the head of its runTests would have set.
KUBE_TEMP=$(mktemp -d "$TMPDIR/group.XXXXXX")
export KUBE_TEMP HOME=$KUBE_TEMP
mkdir -p "$HOME/.kube"
cp "$KUBECONFIG_FILE" "$HOME/.kube/config"
export SED=sed
export CONTEXT=test foundError=""
SUPPORTED_RESOURCES=("*")
kube_flags=(-s "https://127.0.0.1:$SECURE_API_PORT" --insecure-skip-tls-verify)
kube_flags_without_token=("${kube_flags[@]}")
kube_flags+=(--match-server-version)
kube_flags_with_token=("${kube_flags[@]}" --token=admin-token)
export SUPPORTED_RESOURCES kube_flags kube_flags_without_token kube_flags_with_token
# This one counts on the empty namespace that an earlier group left in the kubeconfig.
if [ "$1" = run_kubectl_create_kustomization_directory_tests ]; then create_and_use_new_namespace; fi
# shellcheck source=/dev/null
source suite-fields.sh
# shellcheck source=/dev/null
source suite-inline.sh

run_suite_canary() {
    set -o nounset
    set -o errexit
    bogus-expected-to-fail
    set +o nounset
    set +o errexit
}

declare -F "$1" >/dev/null || exit 78

# As the suite does it: the group sets errexit for itself, and the caller looks at its status alone.
set +o nounset
set +o errexit
(eval "$1")
status=$?
trap - ERR
exit $status
