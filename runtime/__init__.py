"""Everything that runs: onnxruntime sessions, reference kernels, observers in Python."""
