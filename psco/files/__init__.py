"""Files written whole or not at all, with checksums; the bottom room, used by all others."""
