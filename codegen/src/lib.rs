//! Native code generation of numrsc.
