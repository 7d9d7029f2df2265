"""Reading pictures: folders, archives, shards, arrays, and decoding."""
