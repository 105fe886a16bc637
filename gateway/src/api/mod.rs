//! The Kubernetes API served from the metastore, without an apiserver behind it.
