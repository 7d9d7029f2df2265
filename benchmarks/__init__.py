"""Programs that measure psco; not part of the package."""
