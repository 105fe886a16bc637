//! The suites' own tools: real parts, the real binary as a process, clients.
//!
//! Nothing here touches the developer's machine: free ports, temporary directories, no ambient
//! kubeconfig. A process started here ends with the value that stands for it.

pub mod apiserver;
pub mod client;
pub mod component;
pub mod dev;
pub mod etcd;
pub mod fake;
pub mod history;
pub mod kubectl;
pub mod lines;
pub mod load;
pub mod parts;
pub mod pki;
pub mod plane;
pub mod ports;
pub mod process;
pub mod renewals;
pub mod robust;
pub mod site;
pub mod sluice;
pub mod stack;
pub mod store;
pub mod workload;
