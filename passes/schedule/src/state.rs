//! What all kernels of a module share: names for sizes, messages, what they are chosen by.
use crate::{
    messages::{Message, Place},
    tuning::Candidates,
};
use numrsc_facts::Context;
use numrsc_ir::{
    Dim,
    dim::{Atom, Sym},
    kernel::V,
};
use std::collections::HashMap;

#[derive(Debug)]
pub struct LowerState {
    pub context: Context,
    /// The choices of schedules, where there is a tuning table.
    pub choices: Vec<Candidates>,
    pub messages: Vec<Message>,
    /// The codes of messages that were given before.
    codes: HashMap<(String, String), u32>,
    /// Where in the model we are, for messages.
    pub place: Place,
    /// The number of the round of the loop that kernels are launched in.
    pub round: Option<V>,
    /// The first error, for places that can only return code.
    pub refused: Option<String>,
    names: HashMap<(Dim, &'static str), Sym>,
    meanings: HashMap<Sym, Dim>,
}

impl LowerState {
    pub fn new(context: &Context) -> LowerState {
        LowerState {
            context: context.clone(),
            choices: vec![],
            messages: vec![],
            codes: HashMap::new(),
            place: Place::default(),
            round: None,
            refused: None,
            names: HashMap::new(),
            meanings: HashMap::new(),
        }
    }

    /// The code by which compiled code gives this message.
    pub fn message(&mut self, text: &str) -> u32 {
        let message = self.place.message(text);
        if let Some(&code) = self.codes.get(&message.key()) {
            return code;
        }
        let code = self.messages.len() as u32 + 1;
        self.codes.insert(message.key(), code);
        self.messages.push(message);
        code
    }

    /// Lowering fails with this message; the code emitted until then does not matter.
    pub fn refuse(&mut self, text: &str) {
        let message = self.place.message(text);
        self.refused.get_or_insert_with(|| message.text(true));
    }

    /// A size as a polynomial of plain symbols, so that addresses stay simple; anything more complex gets a symbol.
    pub fn size(&mut self, d: &Dim) -> Dim {
        let plain = |a: &Atom| matches!(a, Atom::Sym(_));
        if d.terms().iter().flat_map(|t| &t.factors).all(plain) {
            return d.clone();
        }
        // A single product keeps its factors, so that `12 * x` is still a multiple of 12. All factors are checked to be
        // sizes.
        match &d.terms()[..] {
            [t] if t.coef > 0 => t.factors.iter().fold(Dim::Const(t.coef), |p, a| {
                let factor =
                    if plain(a) { Dim::from_atom(a.clone()) } else { self.named(&Dim::from_atom(a.clone()), "#") };
                &p * &factor
            }),
            _ => self.named(d, "#"),
        }
    }

    /// An index or offset as a polynomial of plain symbols.
    pub fn attribute(&mut self, d: &Dim) -> Dim {
        d.terms().iter().fold(Dim::ZERO, |sum, t| {
            let product = t.factors.iter().fold(Dim::Const(t.coef), |p, a| {
                let plain = matches!(a, Atom::Sym(_));
                let factor =
                    if plain { Dim::from_atom(a.clone()) } else { self.named(&Dim::from_atom(a.clone()), "$#") };
                &p * &factor
            });
            &sum + &product
        })
    }

    fn named(&mut self, d: &Dim, prefix: &'static str) -> Dim {
        // An atom may be known both as a size and as any number: these are two names.
        let count = self.names.len();
        let sym = self.names.entry((d.clone(), prefix)).or_insert_with(|| format!("{prefix}d{count}").into()).clone();
        self.meanings.insert(sym.clone(), d.clone());
        Dim::sym(sym)
    }

    /// How many of the first sizes of two shapes have the same product, if names are among them: without names,
    /// products tell by themselves.
    pub fn same_product(&self, a: &[Dim], b: &[Dim]) -> Option<(usize, usize)> {
        let is_named = |d: &Dim| {
            d.terms()
                .iter()
                .flat_map(|t| &t.factors)
                .any(|f| matches!(f, Atom::Sym(s) if self.meanings.contains_key(s)))
        };
        if !a.iter().chain(b).any(is_named) {
            return None;
        }
        let products = |sizes: &[Dim]| -> Vec<Dim> {
            let next = |product: &mut Dim, d: &Dim| {
                *product = &*product * &d.subst(&|s| self.meaning(s));
                Some(product.clone())
            };
            sizes.iter().scan(Dim::ONE, next).collect()
        };
        let (of_a, of_b) = (products(a), products(b));
        of_a.iter()
            .enumerate()
            .find_map(|(i, x)| Some((i + 1, of_b.iter().position(|y| x == y && !x.is_too_large())? + 1)))
    }

    /// The expression that a symbol stands for.
    pub fn meaning(&self, s: &Sym) -> Option<Dim> {
        self.meanings.get(s).cloned()
    }
}
