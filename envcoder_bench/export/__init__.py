"""Trained policies as files for other programs: ONNX or TorchScript, a description, and the robot's model."""
