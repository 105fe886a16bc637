//! Sends a request to an endpoint and streams the answer back.
