# The one interface: each recipe is a line or two and calls cargo.
CARGO  ?= cargo
SECONDS ?= 60
SEED   ?= 1

.DEFAULT_GOAL := help
.PHONY: help run build test verify verify-fmt verify-lint verify-docs verify-tidy fix-fmt bench fuzz parts conformance robustness faults

help: ## show this
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## all-in-one on the embedded engine: prints a kubeconfig, kubectl works
	$(CARGO) run --locked --release --bin sluice -- run --dev $(ARGS)

build: ## the release binary, target/release/sluice
	$(CARGO) build --locked --release --bin sluice

test: ## all suites; real parts are built once into a cache outside the checkout
	$(CARGO) build --locked --bin sluice
	$(CARGO) build --locked --workspace --example faulty --example mortal --features sluice-gateway/injected-faults
	$(CARGO) test --locked --workspace

verify: verify-fmt verify-lint verify-docs verify-tidy ## format, lints, docs, dependency and layout rules

verify-fmt:
	$(CARGO) fmt --all --check

verify-lint:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

verify-docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items

verify-tidy:
	$(CARGO) test --locked -p sluice-e2e --test tidy

fix-fmt: ## format the tree
	$(CARGO) fmt --all

parts: ## build or find the real parts the suites run against
	e2e/parts/build.sh kube-apiserver kubectl kubectl-convert kube-controller-manager kube-scheduler kwok etcd etcdctl etcdutl benchmark loop protobuf informer nodelet

bench: ## measure beside peers in one run (needs Go, nginx or haproxy, python3)
	e2e/bench/run.sh

fuzz: ## random inputs for SECONDS= against the parsers, from SEED=
	SLUICE_FUZZ_SECONDS=$(SECONDS) SLUICE_FUZZ_SEED=$(SEED) $(CARGO) test --locked -p sluice-e2e --test fuzz -- --nocapture

conformance: ## others' suites against the store and through the gateway, PART= to choose (needs Go, hours)
	e2e/conformance/run.sh $(PART)

robustness: ## the store under kills and failing disks for SECONDS=, judged by its histories, from SEED=
	$(CARGO) build --locked --bin sluice
	$(CARGO) build --locked --workspace --example faulty --example mortal --features sluice-gateway/injected-faults
	SLUICE_ROBUSTNESS_SECONDS=$(SECONDS) SLUICE_ROBUSTNESS_SEED=$(SEED) $(CARGO) test --locked --workspace --test robustness -- --nocapture --test-threads=1

faults: ## the faults of a gateway at full length, NAME= to choose (fault_10); needs a machine of its own
	$(CARGO) build --locked --release --bin sluice
	SLUICE=$(CURDIR)/target/release/sluice SLUICE_FAULTS_FULL=1 $(CARGO) test --locked --workspace --test faults $(NAME) -- --nocapture --test-threads=1
