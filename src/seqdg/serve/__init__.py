"""A trained model by itself: what it reads, its weights, its file, its card, its ONNX form."""
