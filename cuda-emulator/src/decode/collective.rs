//! What lanes of a warp and threads of a block do together: barriers, shuffles, votes and reductions.
use super::{Class, Decoded, Decoder, Kind, Mods, Slot};
use crate::ptx::Operand;

/// `shfl.sync`: every lane gets the value of another one.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    pub way: Way,
    pub d: usize,
    /// Whether the source was within bounds.
    pub p: Option<usize>,
    pub a: usize,
    pub by: usize,
    pub bounds: usize,
    pub members: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
    Butterfly,
    Index,
}

/// `vote.sync`
#[derive(Clone, Copy, Debug)]
pub struct Vote {
    pub kind: VoteKind,
    pub p: (usize, bool),
    pub members: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteKind {
    Ballot { d: usize },
    All { q: usize },
    Any { q: usize },
    Uniform { q: usize },
}

/// `redux.sync` of integers of 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Reduce {
    pub f: fn(u32, u32) -> u32,
    pub d: usize,
    pub a: usize,
    pub members: usize,
}

impl Decoder<'_> {
    pub(super) fn collective(
        &mut self,
        name: &str,
        mods: &mut Mods<'_>,
        operands: &[Operand],
    ) -> Decoded<(Kind, Class)> {
        match name {
            "bar" | "barrier" => self.barrier(mods, operands),
            "shfl" => self.shuffle(mods, operands),
            "vote" => self.vote(mods, operands),
            "redux" => self.reduce(mods, operands),
            _ => {
                mods.take("b32");
                let [d] = self.operands(operands)?;
                Ok((Kind::ActiveMask(self.word_destination(d)?), Class::Collective))
            }
        }
    }

    fn barrier(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        mods.take("cta");
        if mods.take("warp") {
            mods.take("sync");
            let [members] = self.operands(operands)?;
            return Ok((Kind::WarpBarrier(self.word(members)?), Class::Barrier));
        }
        if !mods.take("sync") || mods.take("red") {
            return Err(self.refuse(format!("`{}`", mods.op)));
        }
        mods.take("aligned");
        match operands {
            [Operand::Int(_)] => Ok((Kind::Barrier, Class::Barrier)),
            _ => Err(self.refuse("a barrier of a part of a block")),
        }
    }

    fn shuffle(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        mods.take("b32");
        if !mods.take("sync") {
            return Err(self.refuse(format!("`{}` without `.sync`", mods.op)));
        }
        let way = match mods.one_of(&["up", "down", "bfly", "idx"]) {
            Some("up") => Way::Up,
            Some("down") => Way::Down,
            Some("bfly") => Way::Butterfly,
            Some(_) => Way::Index,
            None => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        let [d, a, by, bounds, members] = self.operands(operands)?;
        let (d, p) = match d {
            Operand::Pair(d, p) => (&**d, Some(self.predicate_destination(p)?)),
            d => (d, None),
        };
        let d = self.word_destination(d)?;
        let [a, by, bounds, members] = self.words([a, by, bounds, members])?;
        Ok((Kind::Shuffle(Shuffle { way, d, p, a, by, bounds, members }), Class::Collective))
    }

    fn predicate_destination(&mut self, operand: &Operand) -> Decoded<usize> {
        match self.destination(operand, 1)? {
            Slot::Predicate(p) => Ok(p),
            _ => Err(self.fail("the result is not a predicate")),
        }
    }

    fn vote(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let is_ballot = mods.one_of(&["b32", "pred"]) == Some("b32");
        if !mods.take("sync") {
            return Err(self.refuse(format!("`{}` without `.sync`", mods.op)));
        }
        let [d, p, members] = self.operands(operands)?;
        let kind = match (mods.one_of(&["ballot", "all", "any", "uni"]), is_ballot) {
            (Some("ballot"), true) => VoteKind::Ballot { d: self.word_destination(d)? },
            (Some("all"), false) => VoteKind::All { q: self.predicate_destination(d)? },
            (Some("any"), false) => VoteKind::Any { q: self.predicate_destination(d)? },
            (Some("uni"), false) => VoteKind::Uniform { q: self.predicate_destination(d)? },
            _ => return Err(self.refuse(format!("`{}`", mods.op))),
        };
        let (p, members) = (self.predicate(p)?, self.word(members)?);
        Ok((Kind::Vote(Vote { kind, p, members }), Class::Collective))
    }

    fn reduce(&mut self, mods: &mut Mods<'_>, operands: &[Operand]) -> Decoded<(Kind, Class)> {
        let ty = mods.last_type();
        if !mods.take("sync") {
            return Err(self.refuse(format!("`{}` without `.sync`", mods.op)));
        }
        let signed = |f: fn(i32, i32) -> i32| -> Option<fn(u32, u32) -> u32> {
            Some(if f(1, 2) == 1 {
                |x, y| x.cast_signed().min(y.cast_signed()).cast_unsigned()
            } else {
                |x, y| x.cast_signed().max(y.cast_signed()).cast_unsigned()
            })
        };
        let f: Option<fn(u32, u32) -> u32> = match (mods.one_of(&["add", "min", "max", "and", "or", "xor"]), ty) {
            (Some("add"), Some("u32" | "s32")) => Some(u32::wrapping_add),
            (Some("min"), Some("s32")) => signed(i32::min),
            (Some("max"), Some("s32")) => signed(i32::max),
            (Some("min"), Some("u32")) => Some(u32::min),
            (Some("max"), Some("u32")) => Some(u32::max),
            (Some("and"), Some("b32")) => Some(|x, y| x & y),
            (Some("or"), Some("b32")) => Some(|x, y| x | y),
            (Some("xor"), Some("b32")) => Some(|x, y| x ^ y),
            _ => None,
        };
        let Some(f) = f else { return Err(self.refuse(format!("`{}`", mods.op))) };
        let [d, a, members] = self.operands(operands)?;
        let d = self.word_destination(d)?;
        let [a, members] = self.words([a, members])?;
        Ok((Kind::Reduce(Reduce { f, d, a, members }), Class::Collective))
    }
}
