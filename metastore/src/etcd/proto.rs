//! The generated wire types and service traits, server side.
//!
//! Key-value pairs are [`super::wire::KeyValue`]; everything else is as the compiler made it.

#![expect(
    unreachable_pub,
    clippy::doc_lazy_continuation,
    clippy::enum_variant_names,
    reason = "generated from etcd's own definitions, for this crate alone"
)]

pub(crate) mod mvccpb {
    include!(concat!(env!("OUT_DIR"), "/server/mvccpb.rs"));
}
pub(crate) mod authpb {
    include!(concat!(env!("OUT_DIR"), "/server/authpb.rs"));
}
pub(crate) mod etcdserverpb {
    include!(concat!(env!("OUT_DIR"), "/server/etcdserverpb.rs"));
}
pub(crate) mod health {
    include!(concat!(env!("OUT_DIR"), "/server/grpc.health.v1.rs"));
}
