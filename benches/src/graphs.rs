//! Generated ONNX models of any number of nodes, for compile times and kernels.
use bytes::Bytes;
use numrsc::onnx::proto::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
};
use numrsc_tests::rng::Rng;

const FLOAT: i32 = 1;

/// Which kind of graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Equal blocks, one after the other: their kernels are compiled once.
    Chain,
    /// Two rails with rungs between them, and another width on each rung: hardly two kernels are equal.
    Ladder,
}

impl Shape {
    pub const ALL: [Shape; 2] = [Shape::Chain, Shape::Ladder];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Chain => "chain",
            Shape::Ladder => "ladder",
        }
    }
}

/// A size of an input: a number or, with symbolic sizes, a name.
type Size = (i64, &'static str);

/// A model of at least this many nodes and few more; with symbolic sizes, the numbers of rows and of pixels are open.
pub fn model(shape: Shape, symbolic: bool, nodes: usize) -> ModelProto {
    let mut builder = Builder::new();
    builder.symbolic = symbolic;
    let fixed = |n: i64| (n, "");
    match shape {
        Shape::Chain => {
            let (mut image, mut rows) = (
                builder.input("image", &[(1, "batch"), fixed(8), (12, "height"), (12, "width")]),
                builder.input("rows", &[(16, "rows"), fixed(32)]),
            );
            while builder.graph.node.len() < nodes {
                image = builder.convolution(&image, 8, 8);
                rows = builder.transformer(&rows, 32, 32);
            }
            builder.output(&image);
            builder.output(&rows);
        }
        Shape::Ladder => {
            let (mut left, mut right) =
                (builder.input("left", &[(16, "rows"), fixed(16)]), builder.input("right", &[(16, "rows"), fixed(16)]));
            let (mut image, mut width, mut channels) =
                (builder.input("image", &[(1, "batch"), fixed(4), (10, "height"), (10, "width")]), 16, 4);
            for rung in 0.. {
                if builder.graph.node.len() >= nodes {
                    break;
                }
                // With another step in each cycle of a prime, no pair of consecutive sizes repeats for 2162 rungs.
                let (to, to_channels) = (16 + rung * (1 + rung / 47) % 47, 4 + rung * (1 + rung / 11) % 11);
                let crossed = builder.node("Add", &[&left, &right], vec![]);
                left = builder.transformer(&crossed, width, to);
                let straight = builder.linear(&right, width, to);
                right = builder.node("Relu", &[&straight], vec![]);
                image = builder.convolution(&image, channels, to_channels);
                (width, channels) = (to, to_channels);
            }
            for value in [left, right, image] {
                builder.output(&value);
            }
        }
    }
    builder.finish()
}

/// A matrix product with weights of about this many bytes, and a nonlinearity.
pub fn heavy(bytes: usize) -> ModelProto {
    let mut builder = Builder::new();
    let width = ((bytes / 4) as f64).sqrt().ceil() as i64;
    let input = builder.input("rows", &[(1, ""), (width, "")]);
    let product = builder.linear(&input, width, width);
    let output = builder.node("Relu", &[&product], vec![]);
    builder.output(&output);
    builder.finish()
}

/// Several products of one matrix, each with weights of its own.
pub fn products(rows: i64, columns: i64, depth: i64, count: i64) -> ModelProto {
    let mut builder = Builder::new();
    let input = builder.input("rows", &[(rows, ""), (depth, "")]);
    for _ in 0..count {
        let weight = builder.weight(&[depth, columns]);
        let product = builder.node("MatMul", &[&input, &weight], vec![]);
        builder.output(&product);
    }
    builder.finish()
}

/// A convolution with bias and a nonlinearity.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    pub channels: [i64; 2],
    pub groups: i64,
    pub window: i64,
    pub stride: i64,
}

/// Layers one after the other over a square image.
pub fn layers(layers: &[Layer], size: i64) -> ModelProto {
    let mut builder = Builder::new();
    let mut image = builder.input("image", &[(1, ""), (layers[0].channels[0], ""), (size, ""), (size, "")]);
    for layer in layers {
        let ([from, to], window) = (layer.channels, layer.window);
        let (weight, bias) = (builder.weight(&[to, from / layer.groups, window, window]), builder.weight(&[to]));
        let attributes = vec![
            ints("pads", &[window / 2; 4]),
            ints("strides", &[layer.stride; 2]),
            AttributeProto {
                name: "group".into(),
                i: Some(layer.groups),
                r#type: Some(AttributeType::Int as i32),
                ..Default::default()
            },
        ];
        let sums = builder.node("Conv", &[&image, &weight, &bias], attributes);
        image = builder.node("Relu", &[&sums], vec![]);
    }
    builder.output(&image);
    builder.finish()
}

struct Builder {
    graph: GraphProto,
    rng: Rng,
    symbolic: bool,
}

impl Builder {
    fn new() -> Builder {
        Builder {
            graph: GraphProto { name: "generated".into(), ..Default::default() },
            rng: Rng::new(1),
            symbolic: false,
        }
    }

    fn finish(self) -> ModelProto {
        ModelProto {
            ir_version: Some(8),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
            ..Default::default()
        }
    }

    fn input(&mut self, name: &str, shape: &[Size]) -> String {
        let size = |&(n, name): &Size| match name {
            "" => DimensionValue::Value(n),
            _ if !self.symbolic => DimensionValue::Value(n),
            name => DimensionValue::Param(name.into()),
        };
        let shape = shape.iter().map(size).collect();
        self.graph.input.push(value(name, Some(shape)));
        name.into()
    }

    fn output(&mut self, name: &str) {
        self.graph.output.push(value(name, None));
    }

    fn node(&mut self, op: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        let name = format!("v{}", self.graph.node.len());
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![name.clone()],
            name: format!("{op}_{name}"),
            op_type: op.into(),
            attribute,
            ..Default::default()
        });
        name
    }

    fn weight(&mut self, dims: &[i64]) -> String {
        let count: i64 = dims.iter().product();
        // Small, so that values keep their magnitude through thousands of layers.
        let data: Vec<u8> = (0..count)
            .flat_map(|_| (((self.rng.below(2001) as f32) - 1000.0) / 1000.0 / dims[0].max(1) as f32).to_le_bytes())
            .collect();
        self.initializer(dims, FLOAT, data)
    }

    fn scalar(&mut self, value: f32) -> String {
        self.initializer(&[], FLOAT, value.to_le_bytes().to_vec())
    }

    fn initializer(&mut self, dims: &[i64], data_type: i32, data: Vec<u8>) -> String {
        let name = format!("w{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            name: name.clone(),
            dims: dims.to_vec(),
            data_type,
            raw_data: Bytes::from(data),
            ..Default::default()
        });
        name
    }

    /// 2 nodes.
    fn linear(&mut self, x: &str, from: i64, to: i64) -> String {
        let (weight, bias) = (self.weight(&[from, to]), self.weight(&[to]));
        let product = self.node("MatMul", &[x, &weight], vec![]);
        self.node("Add", &[&product, &bias], vec![])
    }

    /// 4 nodes, of which one adds the input if the sizes agree.
    fn convolution(&mut self, x: &str, from: i64, to: i64) -> String {
        let (weight, bias) = (self.weight(&[to, from, 3, 3]), self.weight(&[to]));
        let pads = ints("pads", &[1, 1, 1, 1]);
        let y = self.node("Conv", &[x, &weight, &bias], vec![pads]);
        let y = if from == to { self.node("Add", &[&y, x], vec![]) } else { y };
        let y = self.node("Relu", &[&y], vec![]);
        self.node("Sigmoid", &[&y], vec![])
    }

    /// Attention of rows to each other, a layer norm spelled out, and two layers: 26 nodes, of which one adds the input.
    fn transformer(&mut self, x: &str, from: i64, to: i64) -> String {
        let (query, key, values) = (self.linear(x, from, to), self.linear(x, from, to), self.linear(x, from, to));
        let turned = self.node("Transpose", &[&key], vec![ints("perm", &[1, 0])]);
        let scores = self.node("MatMul", &[&query, &turned], vec![]);
        let weights = self.node("Softmax", &[&scores], vec![]);
        let mixed = self.node("MatMul", &[&weights, &values], vec![]);
        let mixed = if from == to { self.node("Add", &[&mixed, x], vec![]) } else { mixed };
        let normal = self.layer_norm(&mixed, to);
        let wide = self.linear(&normal, to, 2 * to);
        let wide = self.node("Relu", &[&wide], vec![]);
        let narrow = self.linear(&wide, 2 * to, to);
        self.node("Add", &[&narrow, &normal], vec![])
    }

    /// 9 nodes, as exporters wrote it before there was an operator.
    fn layer_norm(&mut self, x: &str, width: i64) -> String {
        let axes = || vec![ints("axes", &[-1])];
        let mean = self.node("ReduceMean", &[x], axes());
        let centred = self.node("Sub", &[x, &mean], vec![]);
        let squared = self.node("Mul", &[&centred, &centred], vec![]);
        let variance = self.node("ReduceMean", &[&squared], axes());
        let epsilon = self.scalar(1e-5);
        let variance = self.node("Add", &[&variance, &epsilon], vec![]);
        let deviation = self.node("Sqrt", &[&variance], vec![]);
        let normal = self.node("Div", &[&centred, &deviation], vec![]);
        let (scale, shift) = (self.weight(&[width]), self.weight(&[width]));
        let scaled = self.node("Mul", &[&normal, &scale], vec![]);
        self.node("Add", &[&scaled, &shift], vec![])
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        ints: values.to_vec(),
        r#type: Some(AttributeType::Ints as i32),
        ..Default::default()
    }
}

fn value(name: &str, shape: Option<Vec<DimensionValue>>) -> ValueInfoProto {
    let dim = |d: DimensionValue| Dimension::from(d);
    let shape = shape.map(|shape| TensorShapeProto { dim: shape.into_iter().map(dim).collect() });
    let tensor = TensorType { elem_type: FLOAT, shape };
    ValueInfoProto::new(name, Some(TypeProto::from(TypeValue::Tensor(tensor))))
}
