"""Everything that runs: onnxruntime sessions, the native library, the calibration loop."""
