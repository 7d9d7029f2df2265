"""Programs that measure psco; `benchmarks/README.md` lists them. Not part of the package."""
