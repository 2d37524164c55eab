//! Shapes that operands must have, whatever their values do: declared by rows, checked here.
use numrsc_ir::{Dim, Result, build::X, refuse};

/// A value that an operator demands a shape of, or that may be left out.
pub trait Operand: Sized {
    /// The operand as a tensor of this shape. Refused is what cannot have it; what only run time tells is checked then.
    fn shaped(self, name: &str, shape: &[Dim]) -> Result<Self>;

    /// The operand as one that broadcasts to this shape, which does not grow by it.
    fn onto(self, shape: &[Dim]) -> Result<Self>;
}

impl Operand for X<'_> {
    fn shaped(self, name: &str, shape: &[Dim]) -> Result<Self> {
        let from = self.shape();
        let equal: Vec<Option<bool>> = from.iter().zip(shape).map(|(have, want)| have.equals(want)).collect();
        if from.len() != shape.len() || equal.contains(&Some(false)) {
            let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
            refuse!("`{name}` is {}, expected the shape [{}]", self.ty(), sizes.join(", "));
        }
        let open: Vec<usize> = (0..from.len()).filter(|&axis| equal[axis].is_none()).collect();
        let Some((_, others)) = open.split_last() else { return Ok(self) };
        // The number of elements decides about one axis; sizes of several could make up for each other.
        let mut x = self;
        for &axis in others {
            let same = equal_size(x, &from[axis], &shape[axis])?;
            x = x.slice_axis(axis, &Dim::ZERO, &same, 1)?;
        }
        x.reshape(shape)
    }

    fn onto(self, shape: &[Dim]) -> Result<Self> {
        let from = self.shape();
        let fits = |have: &Dim, want: &Dim| *have == Dim::ONE || have.equals(want) == Some(true);
        let plain =
            from.len() <= shape.len() && from.iter().rev().zip(shape.iter().rev()).all(|(have, want)| fits(have, want));
        if plain { Ok(self) } else { self.broadcast_to(shape) }
    }
}

impl<T: Operand> Operand for Option<T> {
    fn shaped(self, name: &str, shape: &[Dim]) -> Result<Self> {
        self.map(|x| x.shaped(name, shape)).transpose()
    }

    fn onto(self, shape: &[Dim]) -> Result<Self> {
        self.map(|x| x.onto(shape)).transpose()
    }
}

/// The size that two sizes must both be. Binding a size that is negative is an error at run time.
fn equal_size(x: X<'_>, have: &Dim, want: &Dim) -> Result<Dim> {
    let g = x.graph();
    let size = g.map([g.size(have)?, g.size(want)?], |[have, want]| have.eq(want).select(have, have.lit(-1.0)))?;
    Ok(size.to_sizes()?.swap_remove(0))
}
