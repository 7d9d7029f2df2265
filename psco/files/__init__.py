"""Atomic writes, checksums, the cache folder and full disks; used by every other package."""
