//! Pass manager and passes of numrsc.
