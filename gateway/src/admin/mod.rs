//! The operators' own listener: breakers, limits, profiles, health, metrics; it serves handles it is given.
