//! What operators write: types, parsing, validation with line and column, defaults. Inert: it opens
//! no socket, spawns nothing and reads no clock.
