//! One event a request, in the audit.k8s.io/v1 format.
