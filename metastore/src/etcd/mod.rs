//! The etcd v3 wire: the only place in this crate that names an HTTP or gRPC library.
