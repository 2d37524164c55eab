//! The `numrsc` command.
mod cli;
mod out_of_memory;

#[global_allocator]
static ALLOCATOR: out_of_memory::Watched = out_of_memory::Watched;

fn main() -> std::process::ExitCode {
    out_of_memory::watch();
    cli::main()
}
