//! Compiles the wire definitions under `proto/` in pure Rust: no protoc, no network.
//!
//! Two passes over the same files. The server's pass replaces `mvccpb.KeyValue` by a type of ours
//! that hands out bytes encoded once at write; the client's pass is plain generated code, so that
//! tests read the wire with other eyes than those which wrote it.

use std::path::{Path, PathBuf};

const FILES: [&str; 2] = ["etcd/api/etcdserverpb/rpc.proto", "grpc/health.proto"];
const ROOT: &str = "proto";
/// Messages that no call carries; the server's side does without them.
const UNUSED: [&str; 6] = [
    ".authpb.User",
    ".authpb.Role",
    ".etcdserverpb.LeaseCheckpoint",
    ".etcdserverpb.LeaseCheckpointRequest",
    ".etcdserverpb.LeaseCheckpointResponse",
    ".etcdserverpb.DowngradeVersionTestRequest",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let descriptors = protox::compile(FILES, [ROOT])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut server = tonic_prost_build::configure();
    for message in UNUSED {
        server = server.extern_path(message, "()");
    }
    server
        .bytes(".")
        .build_client(false)
        .extern_path(".mvccpb.KeyValue", "crate::etcd::wire::KeyValue")
        .codec_path("crate::etcd::codec::Codec")
        .out_dir(folder(&out, "server")?)
        .compile_fds(descriptors.clone())?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_server(false)
        .out_dir(folder(&out, "client")?)
        .compile_fds(descriptors)?;
    Ok(())
}

fn folder(out: &Path, name: &str) -> std::io::Result<PathBuf> {
    let folder = out.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
