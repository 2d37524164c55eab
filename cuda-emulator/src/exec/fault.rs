//! What a kernel does wrong, with the place in its PTX and the thread that does it.
use super::shadow::Conflict;
use crate::ptx::Space;
use std::fmt;

/// A finding of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kernel: String,
    pub line: u32,
    pub block: [u32; 3],
    /// The number of the thread in its block.
    pub thread: u32,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Outside of all allocations, or of the block's shared memory.
    OutOfBounds {
        space: Space,
        address: u64,
        bytes: u64,
    },
    Misaligned {
        space: Space,
        address: u64,
        bytes: u64,
    },
    /// A write to constant memory.
    Constant {
        address: u64,
    },
    Uninitialised {
        space: Space,
        address: u64,
    },
    Race {
        space: Space,
        address: u64,
        conflict: Conflict,
    },
    /// Not all threads that are left arrive at a barrier.
    DivergentBarrier,
    /// A shuffle or vote without all the lanes that it names.
    MissingLanes {
        named: u32,
        here: u32,
    },
    /// A shuffle reads a lane that takes no part.
    InactiveLane {
        lane: u32,
    },
    Trap,
    /// More instructions than a launch may take.
    Endless,
}

impl What {
    /// Does it end the launch? Other findings are collected.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, What::Race { .. } | What::Uninitialised { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(f, "`{}`, line {}, block ({x}, {y}, {z}), thread {}: {}", self.kernel, self.line, self.thread, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |space: &Space| match space {
            Space::Shared => "shared",
            Space::Const => "constant",
            Space::Param => "parameter",
            Space::Global | Space::Generic => "global",
        };
        match self {
            What::OutOfBounds { space, address, bytes } => {
                write!(f, "{bytes} bytes at {address:#x} lie outside of all {} memory", name(space))
            }
            What::Misaligned { space, address, bytes } => {
                write!(f, "{bytes} bytes of {} memory at {address:#x}, which is no multiple of that", name(space))
            }
            What::Constant { address } => write!(f, "a write to constant memory at {address:#x}"),
            What::Uninitialised { space, address } => {
                write!(f, "{} memory at {address:#x} is read, but was never written", name(space))
            }
            What::Race { space, address, conflict } => {
                let how = match conflict {
                    Conflict::ReadAfterWrite => "is read here and written by another thread",
                    Conflict::WriteAfterRead => "is written here and read by another thread",
                    Conflict::WriteAfterWrite => "is written here and by another thread",
                    Conflict::CachedAndWritten => "is read through the read-only cache and written by the same launch",
                };
                write!(f, "race: {} memory at {address:#x} {how}", name(space))
            }
            What::DivergentBarrier => f.write_str("a barrier that not all threads of the block reach"),
            What::MissingLanes { named, here } => {
                write!(f, "lanes {named:#010x} are named, but only {here:#010x} are here")
            }
            What::InactiveLane { lane } => write!(f, "a shuffle reads lane {lane}, which takes no part"),
            What::Trap => f.write_str("trap"),
            What::Endless => f.write_str("the launch takes more instructions than it may"),
        }
    }
}
