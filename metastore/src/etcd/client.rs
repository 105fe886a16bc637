//! The generated client of the etcd v3 protocol, for tests and tools.
//!
//! Plain generated code: it shares no encoding with the server's side, so what it reads is what
//! any other client would.

#![expect(
    missing_docs,
    clippy::doc_lazy_continuation,
    clippy::missing_errors_doc,
    reason = "generated from etcd's own definitions, which carry the documentation"
)]

pub mod mvccpb {
    include!(concat!(env!("OUT_DIR"), "/client/mvccpb.rs"));
}
pub mod authpb {
    include!(concat!(env!("OUT_DIR"), "/client/authpb.rs"));
}
pub mod etcdserverpb {
    include!(concat!(env!("OUT_DIR"), "/client/etcdserverpb.rs"));
}
pub mod health {
    include!(concat!(env!("OUT_DIR"), "/client/grpc.health.v1.rs"));
}
