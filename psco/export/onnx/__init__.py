"""ONNX files: an encoder or a classifier as one graph, from decoded pixels to the answer."""
