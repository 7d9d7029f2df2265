"""Reading of images: folders, archives, tar shards, arrays, downloads, and decoding."""
