//! Classify, break, limit: what decides whether a request goes on.
