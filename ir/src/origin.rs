//! Where values come from: the nodes of the user's model that a value, or the launch of a kernel, was made of.
//!
//! Origins stand beside what they describe and are no part of its equality: two values that differ in nothing else are
//! one value, with the origins of both.
use crate::{Result, parse::Parser, print::quoted};
use std::{
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// A node of the user's model.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Origin {
    /// Its name, which no other node of the model has. Nodes of nested graphs have the path to them: `loop1.body/add`.
    pub node: Arc<str>,
    /// The operator, with its domain unless that is ONNX itself: `Conv`, `com.microsoft.Gelu`.
    pub operator: Arc<str>,
    /// The rule or pass that moved the name here, from a value that is not computed any more.
    pub moved_by: Option<Arc<str>>,
}

impl Origin {
    pub fn new(node: &str, operator: &str) -> Origin {
        Origin { node: node.into(), operator: operator.into(), moved_by: None }
    }
}

/// A set of nodes, in the order in which they came together. All are equal to each other, so that what has origins can
/// be compared without them; [`Origins::iter`] tells them apart.
#[derive(Clone, Default)]
pub struct Origins(Option<Arc<[Origin]>>);

/// Sets up to this size are searched from end to end.
const SMALL: usize = 8;

impl Origins {
    pub const NONE: Origins = Origins(None);

    pub fn iter(&self) -> std::slice::Iter<'_, Origin> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn len(&self) -> usize {
        self.iter().len()
    }

    pub fn contains(&self, origin: &Origin) -> bool {
        self.iter().any(|o| o.node == origin.node)
    }

    /// The nodes of both. One that both have was moved only if it was in both.
    #[must_use]
    pub fn union(&self, other: &Origins) -> Origins {
        let is_same = |a: &Arc<[Origin]>, b: &Arc<[Origin]>| Arc::ptr_eq(a, b);
        match (&self.0, &other.0) {
            (_, None) => self.clone(),
            (None, _) => other.clone(),
            (Some(a), Some(b)) if is_same(a, b) => self.clone(),
            (Some(a), Some(b)) => a.iter().chain(b.iter()).cloned().collect(),
        }
    }

    /// The same nodes as what a rule or pass moved to a value that they did not give. Of several moves the first counts.
    #[must_use]
    pub fn moved_by(&self, rule: &str) -> Origins {
        let rule: Arc<str> = rule.into();
        let moved = |o: &Origin| Origin { moved_by: o.moved_by.clone().or_else(|| Some(rule.clone())), ..o.clone() };
        self.iter().map(moved).collect()
    }

    /// ` from [Conv "conv1", Relu "relu1"]`, or nothing.
    pub(crate) fn print(&self, word: &str, out: &mut impl fmt::Write) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        write!(out, " {word} {self}")
    }

    /// The list that follows the word.
    pub(crate) fn parse(p: &mut Parser<'_>) -> Result<Origins> {
        let origins = p.list('[', ']', |p| {
            let operator = if p.next_is('"') {
                p.quoted()?
            } else {
                match p.take_while(is_plain) {
                    "" => return Err(p.error("expected an operator")),
                    word => word.to_owned(),
                }
            };
            let node = p.quoted()?;
            let moved_by = if p.take("by") { Some(p.quoted()?.into()) } else { None };
            Ok(Origin { node: node.into(), operator: operator.into(), moved_by })
        })?;
        let count = origins.len();
        let set: Origins = origins.into_iter().collect();
        if set.len() == count { Ok(set) } else { Err(p.error("a node stands here twice")) }
    }
}

/// What an operator is made of that needs no quotes.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

impl FromIterator<Origin> for Origins {
    fn from_iter<I: IntoIterator<Item = Origin>>(all: I) -> Origins {
        let mut set: Vec<Origin> = Vec::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        for origin in all {
            if set.len() == SMALL && places.is_empty() {
                places.extend(set.iter().enumerate().map(|(i, o)| (o.node.clone(), i)));
            }
            let place = if places.is_empty() {
                set.iter().position(|o| o.node == origin.node)
            } else {
                places.get(&origin.node).copied()
            };
            match place {
                Some(i) if origin.moved_by.is_none() => set[i].moved_by = None,
                Some(_) => {}
                None => {
                    if !places.is_empty() {
                        places.insert(origin.node.clone(), set.len());
                    }
                    set.push(origin);
                }
            }
        }
        Origins((!set.is_empty()).then(|| set.into()))
    }
}

impl From<Origin> for Origins {
    fn from(origin: Origin) -> Origins {
        Origins(Some(Arc::new([origin])))
    }
}

impl<'a> IntoIterator for &'a Origins {
    type Item = &'a Origin;
    type IntoIter = std::slice::Iter<'a, Origin>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Origins {
    fn eq(&self, _: &Origins) -> bool {
        true
    }
}

impl Eq for Origins {}

impl Hash for Origins {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.operator.is_empty() && self.operator.chars().all(is_plain) {
            f.write_str(&self.operator)?;
        } else {
            f.write_str(&quoted(&self.operator))?;
        }
        write!(f, " {}", quoted(&self.node))?;
        self.moved_by.as_ref().map_or(Ok(()), |rule| write!(f, " by {}", quoted(rule)))
    }
}

/// `[Conv "conv1", Relu "relu1" by "a rule"]`
impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, origin) in self.iter().enumerate() {
            write!(f, "{}{origin}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
