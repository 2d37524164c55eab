//! What is traced is what is exported: every operation gives in the exported model what it gave when it was traced, in both forms, and at other batches.
use numrs::{
    Array, BatchNorm1d, Conv2d, Dropout, Error, Linear, Module, Tensor,
    ops::{
        export::export_to_onnx,
        model::{OnnxModel, infer, load_onnx, save_onnx},
    },
};
use std::{collections::HashMap, path::Path};

/// Numbers that repeat late, from a half to two.
fn numbers(shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    Array::new(shape.to_vec(), (0..count).map(|i| 0.5 + ((i * 37) % 101) as f32 / 67.0).collect())
}

fn input(shape: &[usize]) -> Tensor {
    Tensor::new(numbers(shape), false)
}

fn weight(shape: &[usize]) -> Tensor {
    Tensor::new(numbers(shape), true)
}

/// Run a model with one input.
fn run(model: &OnnxModel, x: &Array) -> anyhow::Result<Array> {
    let results = infer(model, HashMap::from([(model.graph.inputs[0].name.clone(), x.clone())]))?;
    Ok(results[&model.graph.outputs[0]].clone())
}

fn assert_close(what: &str, got: &Array, want: &Array) {
    assert_eq!(got.shape, want.shape, "{what}");
    for (a, b) in got.data.iter().zip(&want.data) {
        assert!((a - b).abs() <= 1e-5 + 1e-5 * b.abs(), "{what}: {a}, traced {b}");
    }
}

fn exported(folder: &Path, name: &str, tensor: &Tensor) -> OnnxModel {
    let file = folder.join(name);
    export_to_onnx(tensor, &file).unwrap();
    load_onnx(&file).unwrap()
}

type Function = fn(&Tensor) -> anyhow::Result<Tensor>;

/// Of images of two channels.
const FUNCTIONS: &[(&str, Function)] = &[
    ("add", |x| x.add(&weight(&[2, 1, 1]))),
    ("sub", |x| x.sub(&weight(&[6]))),
    ("mul", |x| x.mul(x)),
    ("div", |x| x.div(&weight(&[]))),
    ("pow", |x| x.pow(&weight(&[1]))),
    ("matmul", |x| x.matmul(&weight(&[6, 3]))),
    ("relu", |x| x.sub(&weight(&[1]))?.relu()),
    ("sigmoid", Tensor::sigmoid),
    ("tanh", Tensor::tanh),
    ("exp", Tensor::exp),
    ("log", Tensor::log),
    ("sqrt", Tensor::sqrt),
    ("abs", |x| x.neg()?.abs()),
    ("softmax", |x| x.softmax(1)?.add(&x.softmax(None)?)),
    ("permute", |x| x.permute(vec![0, 2, 3, 1])),
    ("reshape", |x| x.reshape([x.shape()[0], 4, 18])),
    ("flatten", |x| x.flatten(1, -1)),
    ("flatten_inside", |x| x.flatten(2, 3)),
    ("conv1d", |x| x.flatten(2, 3)?.conv1d(&weight(&[3, 2, 5]), Some(&weight(&[3])), 2, 1)),
    ("conv2d", |x| x.conv2d(&weight(&[4, 2, 3, 3]), None, 1, 1)),
    ("batch_norm", |x| x.batch_norm(&weight(&[2]), &weight(&[2]), &input(&[2]), &input(&[2]), 1e-3)),
    ("max_pool2d", |x| x.max_pool2d(2, 2, 0)),
    ("avg_pool2d", |x| x.avg_pool2d(3, 1, 0)),
    ("pool1d", |x| x.flatten(2, 3)?.max_pool1d(3, 2, 1)?.avg_pool1d(2, 1, 0)),
    ("dropout", |x| x.dropout(0.3)?.mul(&weight(&[1]))),
];

#[test]
fn every_operation_is_exported_as_it_was_traced() {
    let folder = tempfile::tempdir().unwrap();
    for (name, function) in FUNCTIONS {
        let traced = function(&input(&[1, 2, 6, 6])).unwrap();
        let alike = function(&input(&[5, 2, 6, 6])).unwrap();
        for suffix in ["onnx", "onnx.json"] {
            let model = exported(folder.path(), &format!("{name}.{suffix}"), &traced);
            assert_eq!((model.graph.inputs.len(), &model.graph.inputs[0].shape[..]), (1, &[1, 2, 6, 6][..]), "{name}");
            assert_close(name, &run(&model, &numbers(&[1, 2, 6, 6])).unwrap(), &traced.data);
            assert_close(name, &run(&model, &numbers(&[5, 2, 6, 6])).unwrap(), &alike.data);
        }
    }
    // The same again, and models that were loaded, give the same bytes.
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let tensor = input(&[2, 3]).add(&weight(&[3])).unwrap();
    let model = exported(folder.path(), "a.onnx", &tensor);
    export_to_onnx(&tensor, folder.path().join("b.onnx")).unwrap();
    save_onnx(&model, folder.path().join("c.onnx")).unwrap();
    assert!(bytes("a.onnx") == bytes("b.onnx") && bytes("a.onnx") == bytes("c.onnx"));
}

#[test]
fn what_is_an_input_and_what_is_a_weight() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing that requires a gradient: two inputs, one of them used twice.
    let [x, y] = [input(&[3]), input(&[3])];
    let z = x.add(&y).unwrap().mul(&x).unwrap();
    assert!(!z.requires_grad);
    let model = exported(folder.path(), "pure.onnx", &z);
    let graph = &model.graph;
    assert_eq!((graph.inputs.len(), graph.initializers.len(), graph.nodes.len()), (2, 0, 2));
    let inputs = graph.inputs.iter().map(|i| (i.name.clone(), numbers(&[3]))).collect();
    assert_close("pure", &infer(&model, inputs).unwrap()[&graph.outputs[0]], &z.data);
    // A result that is used twice is one node.
    let shared = x.exp().unwrap();
    let model = exported(folder.path(), "shared.onnx", &shared.add(&shared).unwrap());
    assert_eq!((model.graph.nodes.len(), model.graph.inputs.len()), (2, 1));
    // An input as it is.
    assert_eq!(exported(folder.path(), "none.onnx", &weight(&[2]).exp().unwrap()).graph.inputs.len(), 0);
}

#[test]
fn layers_have_weights_that_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Linear::new(2, 1).unwrap();
    let [weight, bias] = &layer.parameters()[..] else { panic!("two parameters") };
    weight.borrow_mut().data = Array::new(vec![1, 2], vec![10.0, 1.0]);
    bias.borrow_mut().data = Array::new(vec![1], vec![0.5]);
    let output = layer.forward(&Tensor::new(Array::new(vec![1, 2], vec![3.0, 4.0]), false)).unwrap();
    assert_eq!(output.data.item(), 34.5);
    let model = exported(folder.path(), "linear.onnx", &output);
    assert_eq!(run(&model, &Array::new(vec![2, 2], vec![1.0, 2.0, 5.0, 6.0])).unwrap().data, [12.5, 56.5]);

    let mut norm = BatchNorm1d::new(2).unwrap();
    let [mean, variance] = norm.running_stats();
    mean.borrow_mut().data = Array::new(vec![2], vec![1.0, 2.0]);
    variance.borrow_mut().data = Array::new(vec![2], vec![4.0, 9.0]);
    norm.eval();
    let output = norm.forward(&Tensor::new(Array::new(vec![1, 2, 1], vec![5.0, 8.0]), false)).unwrap();
    assert_close("norm", &output.data, &Array::new(vec![1, 2, 1], vec![2.0, 2.0]));
    // The statistics are in the file, and nobody has to give them.
    let model = exported(folder.path(), "norm.onnx", &output);
    assert_eq!((model.graph.inputs.len(), model.graph.initializers.len()), (1, 4));
}

#[test]
fn what_cannot_be_is_an_error_that_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let text = |result: anyhow::Result<Tensor>| result.unwrap_err().to_string();
    let product = text(input(&[2, 3]).matmul(&input(&[2, 3])));
    assert!(product.starts_with("MatMul: "), "{product}");
    assert!(text(input(&[2, 3]).flatten(1, 2)).contains("has none from 1 to 2"));
    assert!(text(input(&[2, 3]).conv1d(&weight(&[2, 3]), None, 1, 0)).starts_with("Conv: "));
    assert!(Conv2d::new(1, 1, 3, 0, 0).is_err());
    for training in [Dropout::new(0.5).forward(&input(&[1])), BatchNorm1d::new(1).unwrap().forward(&input(&[1, 1, 1]))]
    {
        assert!(matches!(training.unwrap_err().downcast::<Error>().unwrap(), Error::Training { .. }));
    }

    let fixed = exported(folder.path(), "fixed.onnx", &input(&[3, 4]).add(&weight(&[3, 4])).unwrap());
    let error = run(&fixed, &numbers(&[5, 4])).unwrap_err().to_string();
    assert!(error.contains("node #0 `add_0` (Add, opset 18): ") && error.contains("[5, 4] and [3, 4]"), "{error}");
    assert_close("fixed", &run(&fixed, &numbers(&[3, 4])).unwrap(), &fixed_sum());
    let rank = run(&fixed, &numbers(&[2, 3, 4])).unwrap_err().to_string();
    assert!(rank.contains("has the shape [3, 4] in the model, but [2, 3, 4] was given"), "{rank}");
    let name = infer(&fixed, HashMap::from([("z".to_owned(), numbers(&[3, 4]))])).unwrap_err().to_string();
    assert!(name.contains("no input `z`; it has `"), "{name}");
    let missing = infer(&fixed, HashMap::new()).unwrap_err().to_string();
    assert!(missing.contains("is missing"), "{missing}");
    let file = load_onnx(folder.path().join("none.onnx")).unwrap_err();
    assert!(file.to_string().contains("none.onnx: "), "{file}");
    assert!(export_to_onnx(&input(&[1]), folder.path().join("no/such/folder.onnx")).is_err());
}

fn fixed_sum() -> Array {
    let mut sum = numbers(&[3, 4]);
    sum.data.iter_mut().for_each(|x| *x *= 2.0);
    sum
}

#[test]
fn long_chains_are_no_problem() {
    let mut x = input(&[1]);
    for _ in 0..2000 {
        x = x.relu().unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let model = exported(folder.path(), "chain.onnx.json", &x);
    assert_eq!(model.graph.nodes.len(), 2000);
    assert_close("chain", &run(&model, &numbers(&[1])).unwrap(), &x.data);
}

#[test]
fn many_threads_use_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let traced = input(&[1, 4]).matmul(&weight(&[4, 2])).unwrap();
    let model = exported(folder.path(), "m.onnx", &traced);
    let rows: Vec<Array> = (1..20).map(|rows| run(&model, &numbers(&[rows, 4])).unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (i, alone) in rows.iter().enumerate() {
                    assert_eq!(run(&model, &numbers(&[i + 1, 4])).unwrap(), *alone);
                }
            });
        }
    });
}
