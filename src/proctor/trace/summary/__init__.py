"""One screen: what is slow, is the GPU idle, what is risky, what next."""
