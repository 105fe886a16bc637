//! What the audit stream says about each client.
