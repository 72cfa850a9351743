"""Named arrays on disk, fingerprints and checkpoints: written whole or not at all, read without running anything."""
