//! Branches and loops as the builder makes them: which types they get, and what is checked when they run.
use numrsc_ir::{
    DType, Dim, Elem, Elems, Error, Func, Result, Tensor, Type,
    build::{Graph, LoopOut, X},
    eval::{Data, eval},
    verify,
};

fn number(n: i64) -> Data {
    Tensor::from_i64(&[], &[n]).into()
}

fn finished(g: Graph, result: impl Fn(&Graph) -> Result<X<'_>>) -> Func {
    let v = result(&g).expect("builds").value();
    let f = g.finish(&[v]);
    verify(&f).expect("is valid");
    f
}

/// Append `element` to an empty sequence, round after round.
fn appended<'g>(g: &'g Graph, element: &dyn for<'b> Fn(X<'b>) -> Result<X<'b>>) -> Result<X<'g>> {
    let trips = g.param(Type::scalar(DType::I64))?;
    let empty = g.seq(&[], Some(Elem::Tensor { dtype: DType::I64, shape: None }))?;
    let (last, _) = g.loop_(trips, g.scalar(DType::Bool, 1.0)?, &[empty], &[], &|b| {
        let next = b.states[0].seq_insert(None, element(b.round)?)?;
        Ok::<_, Error>(LoopOut { cond: b.cond, states: vec![next], rows: vec![] })
    })?;
    Ok(last[0])
}

#[test]
fn a_sequence_that_starts_empty_holds_what_the_loop_puts_in() {
    let f = finished(Graph::new(), |g| {
        let seq = appended(g, &|round| round.reshape(&[Dim::ONE]))?;
        assert_eq!(seq.ty().to_string(), "seq<i64[1]>");
        seq.seq_at(g.scalar(DType::I64, 1.0)?)
    });
    assert_eq!(eval(&f, &[number(3)]), Ok(vec![Tensor::from_i64(&[1], &[1]).into()]));
}

#[test]
fn sizes_that_change_from_round_to_round_are_not_taken_for_all_elements() {
    let f = finished(Graph::new(), |g| {
        let seq = appended(g, &|round| round.graph().range(DType::I64, &round.to_sizes()?[0]))?;
        assert_eq!(seq.ty().to_string(), "seq<i64[?]>");
        seq.seq_at(g.scalar(DType::I64, -1.0)?)
    });
    assert_eq!(eval(&f, &[number(3)]), Ok(vec![Tensor::from_i64(&[2], &[0, 1]).into()]));
}

#[test]
fn a_captured_sequence_of_known_structure_stays_known() {
    let f = finished(Graph::new(), |g| {
        let vector = Type::tensor(DType::I64, [Dim::sym("n")]);
        let (cond, a, b) = (g.param(Type::scalar(DType::Bool))?, g.param(Type::scalar(DType::I64))?, g.param(vector)?);
        // The elements differ in rank, so only their places tell their types.
        let seq = g.seq(&[a, b], None)?;
        let out =
            g.if_(cond, &[seq], &|g, xs| Ok::<_, Error>(vec![xs[0].seq_at(g.scalar(DType::I64, 0.0)?)?]), &|g, xs| {
                Ok(vec![xs[0].seq_at(g.scalar(DType::I64, 1.0)?)?.sum(&[0], false)?])
            })?;
        assert_eq!(out[0].ty(), Type::scalar(DType::I64));
        Ok(out[0])
    });
    let no = Tensor::from_elems(DType::Bool, vec![], &Elems::Int(vec![0]));
    let args = [no.into(), number(7), Tensor::from_i64(&[2], &[1, 2]).into()];
    assert_eq!(eval(&f, &args), Ok(vec![number(3)]));
}

#[test]
fn a_branch_that_squeezes_decides_the_rank() {
    let f = finished(Graph::new(), |g| {
        let x = g.param(Type::tensor(DType::I64, [Dim::sym("n"), Dim::sym("m")]))?;
        let last = g.size(&x.dim(1)?)?.map(|m| m.eq(1.0))?;
        let out = g.if_(last, &[x], &|_, xs| Ok::<_, Error>(vec![xs[0].squeeze(&[1])?]), &|_, xs| Ok(vec![xs[0]]))?;
        assert_eq!(out[0].rank(), 1);
        Ok(out[0])
    });
    let run = |shape: &[usize]| eval(&f, &[Tensor::from_i64(shape, &[5, 6]).into()]);
    assert_eq!(run(&[2, 1]), Ok(vec![Tensor::from_i64(&[2], &[5, 6]).into()]));
    assert!(run(&[1, 2]).is_err());
}

#[test]
fn a_state_that_is_written_before_it_is_read_may_start_as_a_scalar() {
    let f = finished(Graph::new(), |g| {
        let trips = g.param(Type::scalar(DType::I64))?;
        let x = g.param(Type::tensor(DType::I64, [Dim::sym("n")]))?;
        let start = g.scalar(DType::I64, 0.0)?;
        let (last, _) = g.loop_(trips, g.scalar(DType::Bool, 1.0)?, &[start], &[x], &|b| {
            let next = b.graph.map([b.captures[0], b.round], |[x, i]| x + i)?;
            Ok::<_, Error>(LoopOut { cond: b.cond, states: vec![next], rows: vec![] })
        })?;
        Ok(last[0])
    });
    let run = |n: i64| eval(&f, &[number(n), Tensor::from_i64(&[2], &[5, 6]).into()]);
    assert_eq!(run(3), Ok(vec![Tensor::from_i64(&[2], &[7, 8]).into()]));
    assert!(run(0).is_err());
}
