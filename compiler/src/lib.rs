//! Ahead-of-time compiler for ONNX models: library and command.
