"""What only a real GPU can show; every test here is marked `gpu` and skipped, with the reason, where there is none."""
