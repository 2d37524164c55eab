//! Cross-crate tests of numrsc.
