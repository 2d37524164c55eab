//! The programs of NumRs's tutorials on export (4) and inference (5), as a user has them, against this crate.
use numrs::Array;
use numrs::autograd::{
    Tensor,
    nn::{BatchNorm1d, Conv1d, Dropout, Flatten, Linear, Module, ReLU, Sequential},
};
use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// The network that the tutorials are about, with everything that a module of NumRs has.
#[derive(Clone)]
struct ForecastCNN {
    conv1: Conv1d,
    bn1: BatchNorm1d,
    dropout1: Dropout,
    conv2: Conv1d,
    bn2: BatchNorm1d,
    dropout2: Dropout,
    relu: ReLU,
    head: Sequential,
    seq_len: usize,
}

impl ForecastCNN {
    fn new(seq_len: usize) -> anyhow::Result<Self> {
        let flat_features = 32 * (seq_len - 4);
        Ok(Self {
            conv1: Conv1d::new(1, 16, 3, 1, 0)?,
            bn1: BatchNorm1d::new(16)?,
            dropout1: Dropout::new(0.1),
            conv2: Conv1d::new(16, 32, 3, 1, 0)?,
            bn2: BatchNorm1d::new(32)?,
            dropout2: Dropout::new(0.1),
            relu: ReLU,
            head: Sequential::new(vec![
                Box::new(Flatten::new(1, 2)),
                Box::new(Linear::new(flat_features, 64)?),
                Box::new(ReLU),
                Box::new(Linear::new(64, 1)?),
            ]),
            seq_len,
        })
    }
}

impl Module for ForecastCNN {
    fn forward(&self, input: &Tensor) -> anyhow::Result<Tensor> {
        let x = input.reshape(vec![input.shape()[0], 1, self.seq_len])?;
        let x = self.dropout1.forward(&self.relu.forward(&self.bn1.forward(&self.conv1.forward(&x)?)?)?)?;
        let x = self.dropout2.forward(&self.relu.forward(&self.bn2.forward(&self.conv2.forward(&x)?)?)?)?;
        self.head.forward(&x)
    }

    fn parameters(&self) -> Vec<Rc<RefCell<Tensor>>> {
        let layers: [&dyn Module; 5] = [&self.conv1, &self.bn1, &self.conv2, &self.bn2, &self.head];
        layers.iter().flat_map(|layer| layer.parameters()).collect()
    }

    fn train(&mut self) {
        self.bn1.train();
        self.dropout1.train();
        self.bn2.train();
        self.dropout2.train();
    }

    fn eval(&mut self) {
        self.bn1.eval();
        self.dropout1.eval();
        self.bn2.eval();
        self.dropout2.eval();
        self.head.eval();
    }

    fn box_clone(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

/// Tutorial 4: a forward pass in evaluation mode is traced, and written to a file.
fn export(path: &str) -> anyhow::Result<()> {
    use numrs::ops::export::export_to_onnx;

    let mut model = ForecastCNN::new(128)?;
    let dummy_data = Array::zeros(vec![1, 128]);
    let input_tensor = Tensor::new(dummy_data, false);
    model.eval();
    let output = model.forward(&input_tensor)?;
    export_to_onnx(&output, path)?;
    println!("{path}");
    Ok(())
}

/// Tutorial 5: the file is loaded, looked at, and run on one example.
fn inference(model_path: &str) -> anyhow::Result<Array> {
    use numrs::ops::model::{infer, load_onnx};

    let model = load_onnx(model_path)?;
    println!("{}", model.graph.nodes.len());
    let input_name = &model.graph.inputs[0].name;
    let output_name = &model.graph.outputs[0];
    println!("{input_name}, {output_name}");
    // A batch of one, one channel.
    let data = Array::new(vec![1, 1, 128], vec![0.5; 128]);
    let mut inputs = HashMap::new();
    inputs.insert(input_name.clone(), data);
    let results = infer(&model, inputs)?;
    let prediction = results.get(output_name).expect("the output");
    println!("{prediction:?}");

    // Batches, as the tutorial advises for throughput.
    let batch = Array::new(vec![32, 1, 128], vec![0.5; 32 * 128]);
    let batched = infer(&model, HashMap::from([(input_name.clone(), batch)]))?;
    assert_eq!(batched[output_name].shape, [32, 1]);
    for x in &batched[output_name].data {
        assert!((x - prediction.data[0]).abs() < 1e-5, "{x}, alone {}", prediction.data[0]);
    }
    Ok(prediction.clone())
}

#[test]
fn both_tutorials_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut predictions = vec![];
    for name in ["forecast_cnn.onnx.json", "forecast_cnn.onnx"] {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        export(&path).unwrap();
        predictions.push(inference(&path).unwrap());
    }
    assert!(predictions.iter().all(|p| p.shape == [1, 1] && p.data[0].is_finite()), "{predictions:?}");
}

#[test]
fn tutorials_on_arrays_and_tensors() -> anyhow::Result<()> {
    use numrs::ops::{add, matmul, mean, reshape, softmax, sum, transpose};
    let a = Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(add(&a, &Array::ones(vec![2, 3]))?.data, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let b = Array::new(vec![3, 2], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(matmul(&a, &b)?, Array::new(vec![2, 2], vec![14.0, 32.0, 32.0, 77.0]));
    assert_eq!(reshape(&a, &[6])?.shape(), [6]);
    assert_eq!(transpose(&a, None)?.shape, [3, 2]);
    assert_eq!((sum(&a, None)?.item(), mean(&a, None)?.item()), (21.0, 3.5));
    assert!((softmax(&a, 1)?.data[2] - 0.665_240_9).abs() < 1e-6);
    let image = Array::new(vec![4, 4, 3], vec![255.0; 48]);
    let planes = transpose(&image, Some(vec![2, 0, 1]))?;
    assert_eq!(reshape(&planes, &[1, 3, 4, 4])?.shape(), [1, 3, 4, 4]);

    let t = Tensor::new(a, true);
    assert!(t.requires_grad);
    let model = Sequential::new(vec![Box::new(Linear::new(10, 32)?), Box::new(ReLU), Box::new(Linear::new(32, 1)?)]);
    assert_eq!(model.forward(&Tensor::new(Array::zeros(vec![1, 10]), false))?.data.shape, [1, 1]);
    Ok(())
}
