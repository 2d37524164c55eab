//! Benchmarks of numrsc against its peers.
