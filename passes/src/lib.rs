//! Pass manager and passes of numrsc: from the imported tensor IR to scheduled kernels.
//!
//! Passes are pure functions from one IR to the next and know targets only as data. Nothing is here yet.
