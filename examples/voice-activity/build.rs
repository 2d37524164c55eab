fn main() {
    numrsc::Build::new("../../target/corpus/models/silero_vad_v6_half/model.onnx")
        .name("silero")
        .dim("batch", 1)
        .dim("sequence", 64 + 512)
        .compile();
}
