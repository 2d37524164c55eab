fn main() {
    numrsc::Build::new("../../target/corpus/models/doc_orientation/model.onnx")
        .name("orientation")
        .dim("DynamicDimension.0", 1) // the batch: one picture at a time
        .compile();
}
