"""Classify pictures with onnxruntime alone: python classify_with_onnxruntime.py MODEL PICTURE..."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
entries = session.get_modelmeta().custom_metadata_map
facts = {name: json.loads(text) for name, text in entries.items()}
side, channels, classes = facts["side"], facts["channels"], facts["classes"]
for path in sys.argv[2:]:
    square = ImageOps.fit(Image.open(path), (side, side), Image.Resampling.BICUBIC)
    pixels = np.array(square.convert("L" if channels == 1 else "RGB"))
    images = pixels.reshape(1, side, side, channels)
    probabilities, unknown = session.run(["probabilities", "unknown"], {"images": images})
    label = facts["unknown"] if unknown[0] else classes[probabilities[0].argmax()]
    print(path, label, f"{probabilities[0].max():.3f}", sep="\t")
