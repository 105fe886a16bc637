//! The suites' own tools: real parts, the real binary as a process, clients and checkers.
