//! Accepts connections, terminates TLS and serves HTTP to one boxed handler.
