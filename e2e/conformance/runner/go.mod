module sluice.local/conformance/runner

go 1.26.0
