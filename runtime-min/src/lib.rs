//! The thin runtime that loads and runs what numrsc compiled.
//!
//! It owns the artifact layout and depends on no other crate of the workspace. Nothing is here yet.
