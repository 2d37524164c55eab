//! The thin runtime that loads and runs what numrsc compiled.
