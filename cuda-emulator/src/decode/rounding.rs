//! Rounding in a stated direction.

/// How a result is rounded: to a float, or to a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// Of a modifier such as `rm` or `rmi`.
    pub(super) fn named(modifier: &str) -> Rounding {
        match modifier.as_bytes().get(1) {
            Some(b'z') => Rounding::Zero,
            Some(b'm') => Rounding::Down,
            Some(b'p') => Rounding::Up,
            _ => Rounding::Nearest,
        }
    }

    pub(super) fn whole(self, x: f64) -> f64 {
        match self {
            Rounding::Nearest => x.round_ties_even(),
            Rounding::Zero => x.trunc(),
            Rounding::Down => x.floor(),
            Rounding::Up => x.ceil(),
        }
    }

    /// An `f64` as `f32`.
    pub(super) fn to_f32(self, x: f64) -> f32 {
        self.sum_to_f32(x, 0.0)
    }

    /// `x + rest`, of which the rest is too small for the last digit of `x`, as `f32`.
    fn sum_to_f32(self, x: f64, rest: f64) -> f32 {
        let near = x as f32;
        // What the exact sum is next to `near`.
        let beyond = f64::from(near) - x;
        let (too_large, too_small) =
            (beyond > 0.0 || beyond == 0.0 && rest < 0.0, beyond < 0.0 || beyond == 0.0 && rest > 0.0);
        let negative = x < 0.0 || x == 0.0 && rest < 0.0;
        match self {
            Rounding::Down if too_large => near.next_down(),
            Rounding::Up if too_small => near.next_up(),
            Rounding::Zero if too_large && !negative => near.next_down(),
            Rounding::Zero if too_small && negative => near.next_up(),
            _ => near,
        }
    }

    /// `a b + c`, exact and then rounded. To nearest, this is `mul_add`.
    pub(super) fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        if self == Rounding::Nearest {
            return a.mul_add(b, c);
        }
        // Products of two `f32` are exact in `f64`; what their sum with another one loses is known.
        let (x, y) = (f64::from(a) * f64::from(b), f64::from(c));
        let sum = x + y;
        let of_y = sum - x;
        let rest = (x - (sum - of_y)) + (y - of_y);
        self.sum_to_f32(sum, if rest.is_nan() { 0.0 } else { rest })
    }
}

#[cfg(test)]
mod tests {
    use super::Rounding::{Down, Nearest, Up, Zero};

    #[test]
    fn directions_surround_the_exact_result() {
        let (one, next) = (1.0f32, 1.0f32.next_up());
        let tiny = 2f32.powi(-60);
        for (rounding, above, below) in
            [(Down, one, one.next_down()), (Up, next, one), (Zero, one, one.next_down()), (Nearest, one, one)]
        {
            assert_eq!(rounding.fma(one, one, tiny), above, "{rounding:?}");
            assert_eq!(rounding.fma(one, one, -tiny), below, "{rounding:?}");
            assert_eq!(rounding.fma(-one, one, -tiny), if rounding == Down { -next } else { -one }, "{rounding:?}");
        }
        assert_eq!(Down.fma(3.0, 0.1, 0.0), 0.3f32.next_down());
        assert_eq!(Up.to_f32(1.0 + 2f64.powi(-40)), next);
        assert_eq!(Zero.to_f32(-1.0 - 2f64.powi(-40)), -1.0);
        assert!(Up.fma(f32::INFINITY, 1.0, 1.0).is_infinite() && Up.fma(f32::NAN, 1.0, 1.0).is_nan());
    }
}
