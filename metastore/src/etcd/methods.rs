//! Every call of the wire by its path: what it does to the store, and how it is counted.
//!
//! A call that is not in the table is refused as unimplemented before it gets anywhere, so a
//! service added to the router and forgotten here fails its first test.

/// What a call may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Reads, snapshots included.
    Reads,
    /// Writes data, leases, or what operators set.
    Writes,
    /// Either; what is asked for tells.
    ByContent,
    /// Tells nothing of the data: probes.
    Open,
}

/// How many messages go each way, in the words of gRPC's own metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Unary,
    ServerStream,
    BidiStream,
}

impl Shape {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Shape::Unary => "unary",
            Shape::ServerStream => "server_stream",
            Shape::BidiStream => "bidi_stream",
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    /// `/package.Service/Call`
    pub(crate) path: &'static str,
    pub(crate) effect: Effect,
    pub(crate) shape: Shape,
}

impl Method {
    /// Whether it may write keys or leases.
    pub(crate) fn is_write_of_data(&self) -> bool {
        let of_data = ["/etcdserverpb.KV/", "/etcdserverpb.Lease/"];
        let is_renewal = self.shape == Shape::BidiStream;
        self.effect != Effect::Reads
            && !is_renewal
            && of_data.iter().any(|service| self.path.starts_with(service))
    }

    /// Service and call, as metrics name them.
    pub(crate) fn names(&self) -> (&'static str, &'static str) {
        let path = self.path.trim_start_matches('/');
        path.split_once('/').unwrap_or((path, ""))
    }
}

const fn unary(path: &'static str, effect: Effect) -> Method {
    Method {
        path,
        effect,
        shape: Shape::Unary,
    }
}

const fn streamed(path: &'static str, effect: Effect, shape: Shape) -> Method {
    Method {
        path,
        effect,
        shape,
    }
}

use Effect::{ByContent, Open, Reads, Writes};
use Shape::{BidiStream, ServerStream};

/// All calls, those that come often first.
pub(crate) const METHODS: [Method; 44] = [
    unary("/etcdserverpb.KV/Txn", ByContent),
    unary("/etcdserverpb.KV/Range", Reads),
    streamed("/etcdserverpb.KV/RangeStream", Reads, ServerStream),
    unary("/etcdserverpb.KV/Put", Writes),
    unary("/etcdserverpb.KV/DeleteRange", Writes),
    unary("/etcdserverpb.KV/Compact", Writes),
    streamed("/etcdserverpb.Watch/Watch", Reads, BidiStream),
    unary("/etcdserverpb.Lease/LeaseGrant", Writes),
    unary("/etcdserverpb.Lease/LeaseRevoke", Writes),
    streamed("/etcdserverpb.Lease/LeaseKeepAlive", Writes, BidiStream),
    unary("/etcdserverpb.Lease/LeaseTimeToLive", Reads),
    unary("/etcdserverpb.Lease/LeaseLeases", Reads),
    unary("/etcdserverpb.Maintenance/Status", Reads),
    unary("/etcdserverpb.Maintenance/Alarm", ByContent),
    unary("/etcdserverpb.Maintenance/Defragment", Writes),
    unary("/etcdserverpb.Maintenance/Hash", Reads),
    unary("/etcdserverpb.Maintenance/HashKV", Reads),
    streamed("/etcdserverpb.Maintenance/Snapshot", Reads, ServerStream),
    unary("/etcdserverpb.Maintenance/MoveLeader", Writes),
    unary("/etcdserverpb.Maintenance/Downgrade", Writes),
    unary("/etcdserverpb.Cluster/MemberList", Reads),
    unary("/etcdserverpb.Cluster/MemberAdd", Writes),
    unary("/etcdserverpb.Cluster/MemberRemove", Writes),
    unary("/etcdserverpb.Cluster/MemberUpdate", Writes),
    unary("/etcdserverpb.Cluster/MemberPromote", Writes),
    unary("/etcdserverpb.Auth/AuthStatus", Reads),
    unary("/etcdserverpb.Auth/UserList", Reads),
    unary("/etcdserverpb.Auth/RoleList", Reads),
    unary("/etcdserverpb.Auth/UserGet", Reads),
    unary("/etcdserverpb.Auth/RoleGet", Reads),
    unary("/etcdserverpb.Auth/Authenticate", Reads),
    unary("/etcdserverpb.Auth/AuthEnable", Writes),
    unary("/etcdserverpb.Auth/AuthDisable", Writes),
    unary("/etcdserverpb.Auth/UserAdd", Writes),
    unary("/etcdserverpb.Auth/UserDelete", Writes),
    unary("/etcdserverpb.Auth/UserChangePassword", Writes),
    unary("/etcdserverpb.Auth/UserGrantRole", Writes),
    unary("/etcdserverpb.Auth/UserRevokeRole", Writes),
    unary("/etcdserverpb.Auth/RoleAdd", Writes),
    unary("/etcdserverpb.Auth/RoleDelete", Writes),
    unary("/etcdserverpb.Auth/RoleGrantPermission", Writes),
    unary("/etcdserverpb.Auth/RoleRevokePermission", Writes),
    unary("/grpc.health.v1.Health/Check", Open),
    streamed("/grpc.health.v1.Health/Watch", Open, ServerStream),
];

/// The call of a path, and its place in the table.
pub(crate) fn of(path: &str) -> Option<(usize, &'static Method)> {
    METHODS.iter().enumerate().find(|(_, one)| one.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definitions say which calls there are; each must have its effect written down.
    #[test]
    fn every_call_of_the_definitions_is_in_the_table() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        let files = ["etcd/api/etcdserverpb/rpc.proto", "grpc/health.proto"];
        let mut expected = 0;
        for file in files {
            let text = std::fs::read_to_string(format!("{root}/{file}")).expect("a definition");
            let mut package = "";
            let mut service = "";
            for line in text.lines().map(str::trim) {
                let words: Vec<&str> = line.split([' ', '(', ';']).collect();
                match words.as_slice() {
                    ["package", name, ..] => package = name,
                    ["service", name, ..] => service = name,
                    ["rpc", name, ..] => {
                        expected += 1;
                        let path = format!("/{package}.{service}/{name}");
                        let (_, method) = of(&path).unwrap_or_else(|| panic!("{path} is missing"));
                        assert_eq!(method.names(), (&*format!("{package}.{service}"), *name));
                        let streams = line.matches("stream ").count();
                        let shape = [Shape::Unary, Shape::ServerStream, Shape::BidiStream];
                        assert_eq!(Some(&method.shape), shape.get(streams), "{path}");
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(METHODS.len(), expected);
    }
}
