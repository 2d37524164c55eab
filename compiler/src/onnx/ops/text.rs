//! Text. Tensors of strings can be compared, chosen and moved at run time, so vocabularies work; strings that must be
//! made at run time are refused, and made here if everything is constant.
use crate::onnx::import::{Fail, table::onnx_ops};
use numrsc_ir::{
    DType, Dim, Elems, ReduceFn, ScatterFn, Tensor,
    build::{Graph, X, broadcast_shapes},
};
use std::{collections::BTreeMap, ops::RangeInclusive};

onnx_ops! { pub(super) TEXT in "", |g, cx|
    "TfIdfVectorizer" 9 (x: Any) {
        mode: String, min_gram_length: i64, max_gram_length: i64, max_skip_count: i64,
        ngram_counts: Vec<i64>, ngram_indexes: Vec<i64>,
        pool_int64s: Vec<i64> = vec![], pool_strings: Vec<String> = vec![], weights: Vec<f64> = vec![],
    } => {
        let lengths = min_gram_length..=max_gram_length;
        let pool = Pool::new(pool_int64s, pool_strings, &ngram_counts, &ngram_indexes, &lengths)?;
        tf_idf(x, &pool, max_skip_count, &mode, &Weights::new(weights, &ngram_indexes, pool.size)?)
    };
    "StringConcat" 20 (a: Str, b: Str) {} => string_concat(g, a, b);
    "StringSplit" 20 (x: Str) { delimiter: String = String::new(), maxsplit: Option<i64> }
        => string_split(g, x, &delimiter, maxsplit);
    "StringNormalizer" 10 (x: Str) {
        case_change_action: String = "NONE".into(), is_case_sensitive: bool = false,
        locale: String = String::new(), stopwords: Vec<String> = vec![],
    } => string_normalizer(g, x, &case_change_action, is_case_sensitive, &stopwords);
    "RegexFullMatch" 20 (x: Str) { pattern: String = String::new() } => no_regex();
}

fn no_regex<'g>() -> Result<X<'g>, Fail> {
    Err("regular expressions are not supported".into())
}

const RUN_TIME: &str = "string tensors computed at run time are not supported";

/// The n-grams to count, by length.
struct Pool {
    grams: BTreeMap<usize, Vec<Gram>>,
    size: usize,
    strings: bool,
}

struct Gram {
    tokens: Vec<Token>,
    /// Where in the output it is counted.
    place: i64,
    /// Which of the n-grams of the pool it is.
    number: usize,
}

/// What an occurrence of an n-gram counts.
struct Weights {
    /// By number in the pool.
    of_grams: Vec<f64>,
    /// By place in the output; `None` if n-grams that share a place differ.
    of_places: Option<Vec<f64>>,
}

impl Weights {
    fn new(given: Vec<f64>, indexes: &[i64], size: usize) -> Result<Weights, Fail> {
        if given.is_empty() {
            return Ok(Weights { of_grams: vec![1.0; indexes.len()], of_places: Some(vec![1.0; size]) });
        }
        if given.len() != indexes.len() {
            return Err(format!("{} `weights` are given for {} n-grams", given.len(), indexes.len()).into());
        }
        let mut of_places = BTreeMap::new();
        let same = indexes
            .iter()
            .zip(&given)
            .all(|(place, weight)| of_places.insert(*place, *weight).is_none_or(|w| w == *weight));
        let of_place = |place: usize| of_places.get(&(place as i64)).copied().unwrap_or(0.0);
        Ok(Weights { of_places: same.then(|| (0..size).map(of_place).collect()), of_grams: given })
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Int(i64),
    Str(String),
}

impl Pool {
    /// `counts[n - 1]` is where the n-grams start in the list of all tokens.
    fn new(
        ints: Vec<i64>,
        strings: Vec<String>,
        counts: &[i64],
        indexes: &[i64],
        lengths: &RangeInclusive<i64>,
    ) -> Result<Pool, Fail> {
        if ints.is_empty() == strings.is_empty() {
            return Err("the pool must be given either as integers or as strings".into());
        }
        let is_strings = ints.is_empty();
        let tokens: Vec<Token> = ints.into_iter().map(Token::Int).chain(strings.into_iter().map(Token::Str)).collect();
        let mut starts = counts.iter().map(|&c| usize::try_from(c)).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        starts.push(tokens.len());
        if starts.len() != counts.len() + 1 || !starts.is_sorted() {
            return Err("`ngram_counts` are not increasing places in the pool".into());
        }
        let mut grams: BTreeMap<usize, Vec<Gram>> = BTreeMap::new();
        let mut number = 0;
        for n in 1..starts.len() {
            // Of equal n-grams the last counts.
            let mut found = BTreeMap::new();
            for gram in tokens[starts[n - 1]..starts[n]].chunks_exact(n) {
                let place = indexes.get(number).filter(|i| **i >= 0).ok_or("`ngram_indexes` does not fit the pool")?;
                found.insert(gram.to_vec(), (*place, number));
                number += 1;
            }
            if lengths.contains(&(n as i64)) && !found.is_empty() {
                let gram = |(tokens, (place, number))| Gram { tokens, place, number };
                grams.insert(n, found.into_iter().map(gram).collect());
            }
        }
        let size = indexes.iter().max().and_then(|m| usize::try_from(m + 1).ok());
        let size = size.filter(|s| *s < 1 << 31).ok_or("`ngram_indexes` is not a list of places in the output")?;
        Ok(Pool { grams, size, strings: is_strings })
    }

    /// Token `i` of all n-grams of one length, as a constant.
    fn tokens<'g>(g: &'g Graph, grams: &[Gram], i: usize) -> Result<X<'g>, Fail> {
        let (mut ints, mut strings) = (Vec::new(), Vec::new());
        for gram in grams {
            match &gram.tokens[i] {
                Token::Int(v) => ints.push(*v),
                Token::Str(s) => strings.push(s.clone()),
            }
        }
        if strings.is_empty() {
            return Ok(g.ints(&ints)?);
        }
        Ok(g.constant(Tensor::from_strings(vec![strings.len()], strings)?)?)
    }
}

/// Count n-grams whose tokens are `d = 1 .. skips + 1` apart (single tokens once), and weigh the counts.
fn tf_idf<'g>(x: X<'g>, pool: &Pool, skips: i64, mode: &str, weights: &Weights) -> Result<X<'g>, Fail> {
    let g = x.graph();
    if pool.strings != (x.dtype() == DType::Str) || x.dtype().is_float() {
        return Err(format!("the tokens of the pool are not {}", x.dtype()).into());
    }
    if !(0..=1000).contains(&skips) {
        return Err(format!("`max_skip_count` is {skips}").into());
    }
    let x = if pool.strings { x } else { x.cast(DType::I64)? };
    let rows = match x.rank() {
        0 => x.reshape(&[Dim::ONE, Dim::ONE])?,
        1 => x.unsqueeze(&[0])?,
        2 => x,
        _ => return Err(format!("expected rows of tokens, got {}", x.ty()).into()),
    };
    let (count, length) = (rows.dim(0)?, rows.dim(1)?);
    let mut total = g.full(DType::F32, 0.0, &[Dim::from(pool.size), count.clone()])?;
    for (&n, grams) in &pool.grams {
        let mut sum: Option<X<'g>> = None;
        for d in 1..=if n == 1 { 1 } else { skips + 1 } {
            // One row per starting place: are the tokens at p, p + d, … those of the n-gram?
            let places = (&length - &Dim::Const((n as i64 - 1) * d)).greater(&Dim::ZERO);
            if places == Dim::ZERO {
                break;
            }
            let mut operands = Vec::new();
            for i in 0..n {
                // Token i of the first place, which lies within the row even if it is too short for any.
                let after = &places + &Dim::Const((n - 1 - i) as i64 * d);
                let start = if length.as_const().is_some() {
                    Dim::Const(i as i64 * d)
                } else {
                    (&length - &after).greater(&Dim::ZERO)
                };
                operands.push(rows.slice_axis(1, &start, &places, 1)?.unsqueeze(&[2])?);
                operands.push(Pool::tokens(g, grams, i)?);
            }
            let hit = g.map_all(&operands, |s| {
                let all = s.chunks(2).skip(1).fold(s[0].eq(s[1]), |all, pair| all.and(pair[0].eq(pair[1])));
                all.cast(DType::F32)
            })?;
            let hits = hit.sum(&[1], false)?;
            sum = Some(match sum {
                Some(before) => g.map([before, hits], |[a, b]| a + b)?,
                None => hits,
            });
        }
        let Some(mut sum) = sum else { continue };
        if mode == "TFIDF" {
            let weights = grams.iter().map(|gram| weights.of_grams[gram.number]).collect();
            let weights = Tensor::from_elems(DType::F32, vec![grams.len()], &Elems::Float(weights));
            sum = g.map([sum, g.constant(weights)?], |[sum, w]| sum * w)?;
        }
        let at: Vec<i64> = grams.iter().map(|gram| gram.place).collect();
        total = total.scatter(ScatterFn::Add, g.ints(&at)?, sum.transpose(&[1, 0])?)?;
    }
    let counts = total.transpose(&[1, 0])?;
    let y = match (mode, &weights.of_places) {
        ("TF" | "TFIDF", _) => counts,
        ("IDF", Some(weights)) => {
            let weights = Tensor::from_elems(DType::F32, vec![pool.size], &Elems::Float(weights.clone()));
            g.map([counts, g.constant(weights)?], |[c, w]| c.gt(0.0).select(w, 0.0))?
        }
        ("IDF", None) => {
            return Err("n-grams with different `weights` share a place in the output, and with `mode` IDF the last one in the \
                        text would count; give each a place of its own"
                .into());
        }
        _ => return Err(format!("`mode` is `{mode}`, not TF, IDF or TFIDF").into()),
    };
    Ok(if x.rank() < 2 { y.squeeze(&[0])? } else { y })
}

/// The strings of a constant.
fn known(x: X<'_>) -> Result<Vec<String>, Fail> {
    x.as_const().and_then(|t| t.strings().map(<[String]>::to_vec)).ok_or_else(|| RUN_TIME.into())
}

fn static_shape(x: X<'_>) -> Result<Vec<usize>, Fail> {
    x.tensor()?.static_shape().ok_or_else(|| RUN_TIME.into())
}

fn string_concat<'g>(g: &'g Graph, a: X<'g>, b: X<'g>) -> Result<X<'g>, Fail> {
    let shape = broadcast_shapes(&a.shape(), &b.shape())?;
    let (a, b) = (a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
    let joined = known(a)?.iter().zip(known(b)?).map(|(a, b)| format!("{a}{b}")).collect();
    Ok(g.constant(Tensor::from_strings(static_shape(a)?, joined)?)?)
}

/// The parts along a new last axis, filled up with empty strings, and their numbers.
fn string_split<'g>(g: &'g Graph, x: X<'g>, delimiter: &str, limit: Option<i64>) -> Result<Vec<X<'g>>, Fail> {
    let limit = limit.and_then(|n| usize::try_from(n).ok()).map_or(usize::MAX, |n| n.saturating_add(1));
    let parts: Vec<Vec<String>> = known(x)?.iter().map(|s| split(s, delimiter, limit)).collect();
    let widest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let counts: Vec<i64> = parts.iter().map(|p| p.len() as i64).collect();
    let shape = static_shape(x)?;
    let filled = parts.into_iter().flat_map(|p| {
        let missing = widest - p.len();
        p.into_iter().chain(std::iter::repeat_n(String::new(), missing))
    });
    let all = Tensor::from_strings([&shape[..], &[widest]].concat(), filled.collect())?;
    Ok(vec![g.constant(all)?, g.constant(Tensor::from_i64(&shape, &counts))?])
}

/// At most `limit` parts; without a delimiter, between runs of white space.
fn split(s: &str, delimiter: &str, limit: usize) -> Vec<String> {
    if !delimiter.is_empty() {
        return s.splitn(limit, delimiter).map(Into::into).collect();
    }
    let (mut parts, mut rest) = (Vec::new(), s.trim());
    while !rest.is_empty() && parts.len() + 1 < limit {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        parts.push(rest[..end].to_string());
        rest = rest[end..].trim_start();
    }
    parts.extend((!rest.is_empty()).then(|| rest.to_string()));
    parts
}

/// Without the stop words, then in upper or lower case. Nothing left is one empty string.
fn string_normalizer<'g>(g: &'g Graph, x: X<'g>, case: &str, exact: bool, stop: &[String]) -> Result<X<'g>, Fail> {
    let change = match case {
        "NONE" => str::to_string,
        "LOWER" => str::to_lowercase,
        "UPPER" => str::to_uppercase,
        _ => return Err(format!("`case_change_action` is `{case}`, not LOWER, UPPER or NONE").into()),
    };
    let words = match x.rank() {
        1 => x,
        2 => x.squeeze(&[0])?,
        _ => return Err(format!("expected a vector of strings, got {}", x.ty()).into()),
    };
    let empty = g.constant(Tensor::from_strings(vec![1], vec![String::new()])?)?;
    let kept = if let Ok(words) = known(words) {
        let fold = |s: &str| if exact { s.to_string() } else { s.to_lowercase() };
        let stop: Vec<String> = stop.iter().map(|s| fold(s)).collect();
        let left: Vec<String> = words.iter().filter(|w| !stop.contains(&fold(w))).map(|w| change(w)).collect();
        if left.is_empty() { empty } else { g.constant(Tensor::from_strings(vec![left.len()], left)?)? }
    } else if case == "NONE" && stop.is_empty() {
        words
    } else if case == "NONE" && exact {
        let stop = g.constant(Tensor::from_strings(vec![stop.len()], stop.to_vec())?)?;
        let same = g.map([words.unsqueeze(&[1])?, stop], |[w, s]| w.eq(s))?;
        let left = same.reduce(ReduceFn::Max, &[1], false)?.map(|s| s.not())?.compress()?;
        let size = left.dim(0)?.greater(&Dim::ONE);
        g.concat(&[words.gather(left, 0, 0)?, empty], 0)?.slice_axis(0, &Dim::ZERO, &size, 1)?
    } else {
        return Err(RUN_TIME.into());
    };
    Ok(if x.rank() == 2 { kept.unsqueeze(&[0])? } else { kept })
}
