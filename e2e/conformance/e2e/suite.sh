#!/usr/bin/env bash
# Kubernetes' own e2e tests (k8s.io/kubernetes, test/e2e) of the API machinery that need no kubelet,
# by a bearer token and by a client certificate through the gateway: whatever passes on a bare
# kube-apiserver passes through it.
#
# WAYS="token certificate"   direct-token and direct-certificate are without the gateway
# RUN=REGEX                  only tests that match, in place of all of [sig-api-machinery]
# WRITE_BASELINE=1           runs without the gateway and writes what passes there
set -uo pipefail
# shellcheck source=e2e/conformance/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
: "${SLUICE:?run by run.sh}" "${OUT:?}" "${SUMMARY:?}"

KUBERNETES=1.36.2
BASELINE=$HERE/e2e/direct-$KUBERNETES.tsv
MORE_PARTS=(E2E=e2e.test SCHEDULER=kube-scheduler KWOK=kwok)
behind_the_gateway e2e || exit 0

# Left out: what reaches into a node or a container (webhooks and aggregated apiservers run in pods
# there), what wants a feature that is off, what is known as flaky, and what takes many minutes.
without=(
    '\[Disruptive\]' '\[Slow\]' '\[Flaky\]' 'Feature:OffByDefault' 'Feature:StorageVersionAPI'
    'AdmissionWebhook' 'CustomResourceConversionWebhook' 'CustomResourceFieldSelectors' 'Aggregated APIServer'
    '1\.17 [Ss]ample' 'drowned out'
)
export FOCUS=${RUN:-'\[sig-api-machinery\]'} SKIP
SKIP=$(IFS='|' && printf '%s' "${without[*]}")

each_way e2e "Kubernetes' e2e tests $KUBERNETES" "$BASELINE"
