//! Upstream clusters: endpoints, health, selection, connections.
