fn main() {
    // The size of a batch stays open.
    numrsc::Build::new("../../target/corpus/models/magika_v3_3/model.onnx").name("magika").compile();
}
