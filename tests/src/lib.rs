//! Cross-crate tests of numrsc, and what they share: random functions and a fuzzer.
pub mod alloc;
pub mod corpus;
pub mod coverage;
pub mod filetests;
pub mod fuzz;
pub mod generate;
pub mod judge;
pub mod kernels;
pub mod mutate;
pub mod native;
pub mod outside;
pub mod perturbed;
pub mod rng;
pub mod rules;
