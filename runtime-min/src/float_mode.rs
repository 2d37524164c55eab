//! The floating-point mode of a thread: the processor's control register, where it has a relevant one.
//!
//! Compiled code takes subnormal numbers for 0 unless told otherwise. They mean nothing to a model (all of them are below 1.2e-38), but every operation with one
//! takes many processors a hundred times as long, and there are models full of them: weights of attention far from the maximum, states that fade out.
#![allow(unsafe_code)]

/// The content of the control register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FloatMode(register::Bits);

impl FloatMode {
    /// That of this thread.
    pub(crate) fn current() -> FloatMode {
        FloatMode(register::read())
    }

    /// Subnormal results become 0, and subnormal operands count as 0.
    pub(crate) fn flushing_subnormals(self) -> FloatMode {
        FloatMode(self.0 | register::FLUSH)
    }

    /// Runs something in this mode. It must not compute with floats in Rust, only in compiled code.
    pub(crate) fn within<R>(self, f: impl FnOnce() -> R) -> R {
        let before = FloatMode::current();
        if before == self {
            return f();
        }
        // SAFETY: the mode was read from a register of this kind. Whoever may compute with floats in Rust gets back the one that there was.
        unsafe { register::write(self.0) };
        let result = f();
        // SAFETY: as above.
        unsafe { register::write(before.0) };
        result
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    use core::arch::asm;

    pub(super) type Bits = u32;
    pub(super) const FLUSH: Bits = 1 << 15 | 1 << 6;

    pub(super) fn read() -> Bits {
        let mut bits: Bits = 0;
        // SAFETY: this writes the register to that variable and does nothing else.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut bits, options(nostack, preserves_flags)) };
        bits
    }

    pub(super) unsafe fn write(bits: Bits) {
        // SAFETY: as the caller says.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const bits, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use core::arch::asm;

    pub(super) type Bits = u64;
    pub(super) const FLUSH: Bits = 1 << 24;

    pub(super) fn read() -> Bits {
        let bits: Bits;
        // SAFETY: this reads the register and does nothing else.
        unsafe { asm!("mrs {}, fpcr", out(reg) bits, options(nomem, nostack, preserves_flags)) };
        bits
    }

    pub(super) unsafe fn write(bits: Bits) {
        // SAFETY: as the caller says.
        unsafe { asm!("msr fpcr, {}", in(reg) bits, options(nostack, preserves_flags)) };
    }
}

/// Processors that have no such mode, or do not need it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) type Bits = u32;
    pub(super) const FLUSH: Bits = 0;

    pub(super) fn read() -> Bits {
        0
    }

    pub(super) unsafe fn write(_: Bits) {}
}

#[cfg(test)]
mod tests {
    use super::FloatMode;

    #[test]
    fn modes_end_with_what_is_done_in_them() {
        let outside = FloatMode::current();
        let inside = outside.flushing_subnormals();
        inside.within(|| {
            assert_eq!(FloatMode::current(), inside);
            outside.within(|| assert_eq!(FloatMode::current(), outside));
            assert_eq!(FloatMode::current(), inside);
        });
        assert_eq!(FloatMode::current(), outside);
    }
}
