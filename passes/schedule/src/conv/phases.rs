//! Transposed convolutions. With `s - 1` zeros between the elements of the operand, pixels of the result that are `s`
//! apart see elements through the same taps, every `s`-th one: those with the same place in `0..s` are a *phase*, and a
//! phase is a convolution of the operand without zeros. All phases of a pixel see almost the same elements, so they are
//! done as one convolution with that many times the outputs, where a phase has zeros for the taps it lacks.
use numrsc_ir::{Dim, Func, Node, Op, Type};

#[derive(Debug)]
pub struct Phases {
    /// How many there are along each axis.
    spread: Vec<i64>,
    /// Taps that some phase sees, how far they begin before the operand, and whether they may see more than the
    /// operand.
    pub window: Vec<i64>,
    pub low: Vec<Dim>,
    pub padded: bool,
    /// How many pixels each phase has, and the result.
    pub steps: Vec<Dim>,
    pub sizes: Vec<Dim>,
    /// Pixels in front of the result that are computed for nothing.
    pub cut: Vec<i64>,
    /// Is there nothing to be cut off?
    pub exact: bool,
    /// Taps and low padding of the convolution.
    of: Vec<(i64, i64)>,
}

impl Phases {
    /// The phases of a convolution with constant weights, if they all look alike.
    pub fn of(func: &Func, node: &Node) -> Option<Phases> {
        let Op::Conv { strides, dilations, spread, low, high, .. } = &node.op else { return None };
        let space = |ty: &Type| ty.as_tensor().ok().map(|t| t.shape[2..2 + spread.len()].to_vec());
        let (input, result) = (space(func.ty(node.args[0]))?, space(&node.ty)?);
        let window: Vec<i64> = space(func.ty(node.args[1]))?.iter().map(Dim::as_const).collect::<Option<_>>()?;
        let mut all = Phases {
            spread: spread.clone(),
            window: vec![],
            low: vec![],
            padded: false,
            steps: vec![],
            sizes: result,
            cut: vec![],
            exact: true,
            of: vec![],
        };
        for (d, &s) in spread.iter().enumerate() {
            let (taps, size) = (window[d], all.sizes[d].clone());
            if s == 1 {
                let crops = high[d].as_const().is_some_and(|c| c <= 0);
                all.padded |= low[d] != Dim::ZERO || !crops;
                all.push(taps, low[d].clone(), size, 0, (taps, 0));
                continue;
            }
            let low = low[d].as_const()?;
            if strides[d] != 1 || dilations[d] != 1 {
                return None;
            }
            // Where the first phase begins decides how many taps some phase sees.
            let seen = |cut: i64| (low + cut).div_euclid(s) + (taps + s - 2 - low - cut).div_euclid(s) + 1;
            let cut = (0..s).min_by_key(|&c| seen(c))?;
            let before = (low + cut).div_euclid(s);
            let steps = (&size + &Dim::Const(cut)).ceil_div(&Dim::Const(s));
            let reach = &steps + &Dim::Const(seen(cut) - 1);
            all.padded |= before != 0 || reach.at_most(&input[d]) != Some(true);
            all.exact &= cut == 0 && &steps * &Dim::Const(s) == size;
            all.push(seen(cut), Dim::Const(before), steps, cut, (taps, low));
        }
        all.window.iter().all(|&n| n > 0).then_some(all)
    }

    fn push(&mut self, window: i64, low: Dim, steps: Dim, cut: i64, of: (i64, i64)) {
        self.window.push(window);
        self.low.push(low);
        self.steps.push(steps);
        self.cut.push(cut);
        self.of.push(of);
    }

    pub fn count(&self) -> i64 {
        self.spread.iter().product()
    }

    pub fn is_one(&self) -> bool {
        self.count() == 1
    }

    /// By phase and tap of the common window: the tap of the convolution.
    pub fn taps(&self) -> Vec<Vec<Option<i64>>> {
        let places = |sizes: &[i64]| -> Vec<Vec<i64>> {
            let mut all = vec![vec![]];
            for &n in sizes {
                all = all.iter().flat_map(|at: &Vec<i64>| (0..n).map(|i| [&at[..], &[i]].concat())).collect();
            }
            all
        };
        let tap = |phase: &[i64], at: &[i64]| {
            (0..at.len()).try_fold(0, |number, d| {
                let ((taps, low), s) = (self.of[d], self.spread[d]);
                let shift = if s == 1 { 0 } else { (low + self.cut[d]).rem_euclid(s) - phase[d] };
                let t = at[d] * s + shift;
                (0..taps).contains(&t).then_some(number * taps + t)
            })
        };
        let windows = places(&self.window);
        places(&self.spread).iter().map(|phase| windows.iter().map(|at| tap(phase, at)).collect()).collect()
    }

    /// The pixel of the result that a step of a phase computes.
    pub fn pixel(&self, step: &[Dim], phase: &[Dim]) -> Vec<Dim> {
        let at = |d: usize| &(&(&step[d] * &Dim::Const(self.spread[d])) + &phase[d]) - &Dim::Const(self.cut[d]);
        (0..step.len()).map(at).collect()
    }

    /// Along each axis: the place of a phase.
    pub fn place(&self, phase: &Dim) -> Vec<Dim> {
        let sizes: Vec<Dim> = self.spread.iter().map(|&s| Dim::Const(s)).collect();
        super::unravel(phase, &sizes, &std::collections::HashMap::new())
    }
}
