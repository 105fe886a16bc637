//! A real kubectl's exec, attach, port-forward and logs, through the gateway, over a real
//! kube-apiserver, to commands that run: by WebSocket and by SPDY, with a certificate and with a
//! token, through reloads, silence and the gateway's end.
//!
//! In the kubelet's place stands `e2e/nodelet`, which serves Kubernetes' own streaming code.
//! Another kubectl than the apiserver's: `SLUICE_EXEC_KUBECTL=1.35.4`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod commands;
mod ending;
mod forwarded;
mod session;
mod silence;
mod stage;
mod terminal;

use stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_through_the_front() {
    let Some(mut stage) = Stage::start().await else {
        return;
    };
    commands::outputs_and_the_exit_code_come_back(&stage).await;
    commands::megabytes_pass_both_ways_to_the_end_of_the_input(&stage).await;
    commands::whoever_attaches_is_heard(&stage).await;
    terminal::a_terminal_has_its_size_and_its_interrupt(&stage).await;
    forwarded::a_forwarded_port_carries_http(&stage).await;
    forwarded::a_log_is_followed_line_by_line(&stage).await;
    silence::silence_and_reloads_end_nothing(&stage).await;
    commands::the_audit_has_each_tunnel_once(&stage);
    ending::an_end_says_why(&mut stage).await;
}
