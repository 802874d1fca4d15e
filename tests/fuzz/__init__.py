"""Random programs: fused equals unfused bit for bit, and both equal the reference."""
