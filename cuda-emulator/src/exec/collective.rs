//! Shuffles, votes and reductions of the lanes of a warp.
use super::{
    fault::What,
    registers::{LANES, Registers, write},
};
use crate::decode::{Reduce, Shuffle, Vote, VoteKind, Way};

/// Do all lanes that an instruction names take part? All of them name the same ones.
pub(super) fn members(r: &Registers, named: usize, here: u32) -> Result<u32, (usize, What)> {
    for lane in (0..LANES).filter(|lane| here >> lane & 1 == 1) {
        let named = r.words[named][lane];
        if named & !here != 0 || named >> lane & 1 == 0 {
            return Err((lane, What::MissingLanes { named, here }));
        }
    }
    Ok(here)
}

pub(super) fn shuffle(r: &mut Registers, s: &Shuffle, here: u32) -> Result<(), (usize, What)> {
    members(r, s.members, here)?;
    let (values, by, bounds) = (r.words[s.a], r.words[s.by], r.words[s.bounds]);
    let (mut out, mut inside) = ([0; LANES], 0);
    for lane in (0..LANES).filter(|lane| here >> lane & 1 == 1) {
        // The limit of the last lane, and the bits of a lane's number that name its segment.
        let (limit, segment) = (bounds[lane] & 31, bounds[lane] >> 8 & 31);
        let own = lane as u32;
        let (by, first) = (by[lane] & 31, own & segment);
        let last = first | limit & !segment;
        let (source, is_inside) = match s.way {
            Way::Up => (own.wrapping_sub(by), own.checked_sub(by).is_some_and(|from| from >= last)),
            Way::Down => (own + by, own + by <= last),
            Way::Butterfly => (own ^ by, own ^ by <= last),
            Way::Index => (first | by & !segment, first | by & !segment <= last),
        };
        let source = if is_inside { source } else { own };
        if here >> source & 1 == 0 {
            return Err((lane, What::InactiveLane { lane: source }));
        }
        out[lane] = values[source as usize];
        inside |= u32::from(is_inside) << lane;
    }
    write(r, s.d, here, &out);
    if let Some(p) = s.p {
        r.predicates[p] = r.predicates[p] & !here | inside & here;
    }
    Ok(())
}

pub(super) fn vote(r: &mut Registers, v: &Vote, here: u32) -> Result<(), (usize, What)> {
    members(r, v.members, here)?;
    let (p, negated) = v.p;
    let bits = (if negated { !r.predicates[p] } else { r.predicates[p] }) & here;
    let mut put = |q: usize, holds: bool| {
        r.predicates[q] = if holds { r.predicates[q] | here } else { r.predicates[q] & !here };
    };
    match v.kind {
        VoteKind::Ballot { d } => write(r, d, here, &[bits; LANES]),
        VoteKind::All { q } => put(q, bits == here),
        VoteKind::Any { q } => put(q, bits != 0),
        VoteKind::Uniform { q } => put(q, bits == here || bits == 0),
    }
    Ok(())
}

pub(super) fn reduce(r: &mut Registers, s: &Reduce, here: u32) -> Result<(), (usize, What)> {
    members(r, s.members, here)?;
    let values = r.words[s.a];
    let all = (0..LANES).filter(|lane| here >> lane & 1 == 1).map(|lane| values[lane]);
    if let Some(result) = all.reduce(s.f) {
        write(r, s.d, here, &[result; LANES]);
    }
    Ok(())
}
